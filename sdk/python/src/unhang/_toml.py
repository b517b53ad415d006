"""Writes the few forms of TOML that the configuration of the gateway needs. The standard library only reads TOML."""

from __future__ import annotations

import json
import re
from typing import Any, cast

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")


def value(item: Any) -> str:
    """Returns a value in one line. TOML has no null: members with it are left out, as no limit on a value is lost by that."""
    if isinstance(item, dict):
        table = cast("dict[str, Any]", item)
        members = (f"{_text(str(key))} = {value(member)}" for key, member in table.items() if not _is_null(member))
        return "{ " + ", ".join(members) + " }"
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(value(member) for member in cast("list[Any]", item)) + "]"
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, (int, float)):
        return repr(item)
    return _text(_plain(str(item)))


def _plain(text: str) -> str:
    """Returns a text that stands for itself where `${NAME}` is a variable."""
    return text.replace("${", "$${")


def literal(words: list[str]) -> list[str]:
    """Returns the words of a command that stand for themselves where `{NAME}` is a placeholder."""
    return [_PLACEHOLDER.sub(r"{{\1}}", word) for word in words]


def _is_null(item: Any) -> bool:
    return item is None or (isinstance(item, (list, tuple)) and any(_is_null(member) for member in cast("list[Any]", item)))


def _text(text: str) -> str:
    # A basic string of TOML is one of JSON, but for surrogates and DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def tool(name: str, keys: dict[str, Any]) -> str:
    """Returns the table of a tool."""
    lines = [f"[tools.{_text(name)}]"]
    lines += [f"{key} = {value(item)}" for key, item in keys.items() if item is not None]
    return "\n".join(lines) + "\n"

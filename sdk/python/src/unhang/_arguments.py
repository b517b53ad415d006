"""Arguments on their way from a call to a function: JSON in between, and the types of the signature at both ends."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from typing import Any

from unhang._json import to_json


def typed(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments as the types that the function asks for. Without pydantic they stay as JSON has them.

    Raises `ValueError` if an argument does not fit.
    """
    adapters = _adapters(function)
    return {
        name: adapters[name].validate_python(value) if name in adapters else value for name, value in arguments.items()
    }


@functools.lru_cache(maxsize=None)
def _adapters(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns what checks each argument. It is made once, since it takes longer than the check itself."""
    try:
        import pydantic
    except ImportError:
        return {}
    hints = typing.get_type_hints(function, include_extras=True)
    return {name: pydantic.TypeAdapter(hint) for name, hint in hints.items() if name != "return"}


def to_json_arguments(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments as JSON has them. Raises `TypeError` if the function would get another value than this one."""
    found = {name: to_json(value, f"the argument `{name}`") for name, value in arguments.items()}
    try:
        arrived = typed(function, found)
    except ValueError as error:
        raise TypeError(str(error)) from error
    for name, value in arguments.items():
        if not _is_equal(arrived[name], value):
            kind = type(value).__name__
            raise TypeError(
                f"the argument `{name}` is a {kind} that JSON does not keep: the job would get {_short(arrived[name])}; "
                "give its parts, and make the object in the function"
            )
    return found


def _is_equal(arrived: Any, value: Any) -> bool:
    """Returns whether two values are equal, or cannot be compared, as arrays."""
    try:
        return bool(arrived == value)
    except Exception:
        return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"

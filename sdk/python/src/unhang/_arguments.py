"""Arguments on their way from a call to a function: JSON in between, and the types of the signature at both ends."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, cast

from unhang._json import to_json


def typed(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments as the types that the function asks for. Without pydantic they stay as JSON has them.

    Raises `ValueError` if an argument does not fit.
    """
    checks = _checks(function)
    given = {name: _checked(checks.adapters.get(name), name, value) for name, value in arguments.items()}
    return {**{name: field.get_default(call_default_factory=True) for name, field in checks.fields.items()}, **given}


class _Checks(typing.NamedTuple):
    adapters: dict[str, Any]
    """What checks each argument."""
    fields: dict[str, Any]
    """What pydantic's `Field` says of an argument that need not be given. It is the default, and the function would get it."""


@functools.lru_cache(maxsize=None)
def _checks(function: Callable[..., Any]) -> _Checks:
    """Returns how the arguments are checked. It is made once, since it takes longer than the check itself."""
    try:
        import pydantic
        from pydantic.fields import FieldInfo
    except ImportError:
        return _Checks({}, {})
    hints = _hints(function)
    defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    fields = {name: default for name, default in defaults.items() if isinstance(default, FieldInfo)}
    adapters: dict[str, Any] = {}
    for name, hint in hints.items():
        kind: Any = typing.Annotated[hint, fields[name]] if name in fields else hint
        adapters[name] = pydantic.TypeAdapter(kind)
    return _Checks(adapters, {name: field for name, field in fields.items() if not field.is_required()})


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the types of the arguments. That of the result may be a name that nobody has imported, and nobody needs it."""

    def holder() -> None: ...

    annotations = cast("dict[str, Any]", getattr(function, "__annotations__", {}))
    holder.__annotations__ = {name: hint for name, hint in annotations.items() if name != "return"}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    return typing.get_type_hints(holder, globalns=names, include_extras=True)


def _checked(adapter: Any, name: str, value: Any) -> Any:
    if adapter is None:
        return value
    try:
        return adapter.validate_python(value)
    except ValueError as error:
        raise ValueError(f"the argument `{name}` does not fit: {_reason(error)}") from error


def _reason(error: Any) -> str:
    """Returns the sentences of an error of pydantic, each with its place in the argument."""
    if not hasattr(error, "errors"):
        return str(error)
    parts: list[str] = []
    for part in error.errors(include_url=False, include_input=False, include_context=False):
        place = ".".join(str(key) for key in part["loc"])
        parts.append(f"{place}: {part['msg']}" if place else str(part["msg"]))
    return "; ".join(parts)


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
    """Returns whether two values are equal. Arrays cannot be compared as a whole, and one that is a list by now has changed."""
    try:
        return bool(arrived == value) and isinstance(arrived, bool) == isinstance(value, bool)
    except Exception:
        return type(arrived) is type(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"

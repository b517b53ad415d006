"""Turns what a function returns into JSON. What has no JSON form is named by its place."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any, cast

# The program refuses JSON that is nested more deeply, with what stands around this value.
_DEEPEST = 100
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_LONGEST_PLACE = 100


class NotJsonError(TypeError):
    """A part of the value has no JSON form. The text names it."""


def to_json(value: Any, place: str = "the result", depth: int = 0) -> Any:
    """Returns the value as objects that `json.dumps` takes, or raises `NotJsonError`.

    Beside JSON's own types it takes pydantic models, dataclasses, named tuples, numpy scalars and arrays, sets, dates, UUIDs, paths,
    decimals and enums.
    """
    if depth > _DEEPEST:
        raise NotJsonError(f"more than {_DEEPEST} levels are nested, or a part contains itself, at {place[:_LONGEST_PLACE]}…")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, enum.Enum):
        return to_json(value.value, place, depth + 1)
    if isinstance(value, int):
        if not _SMALLEST <= value <= _LARGEST:
            raise NotJsonError(f"{place} is a whole number of more than 64 bits; use a float or a string in its place")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJsonError(f"{place} is {value}, which JSON does not have; use None or a string in its place")
        return float(value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        named = {_key(key, place): to_json(member, f"{place}[{key!r}]", depth + 1) for key, member in mapping.items()}
        if len(named) != len(mapping):
            raise NotJsonError(f"two keys of {place} are the same as strings, and JSON's keys are strings")
        return named
    as_dict: Any = getattr(cast("object", value), "_asdict", None)
    if isinstance(value, tuple) and as_dict is not None:
        return to_json(as_dict(), place, depth + 1)
    if isinstance(value, (list, tuple)):
        members = enumerate(cast("list[Any]", value))
        return [to_json(member, f"{place}[{index}]", depth + 1) for index, member in members]
    if isinstance(value, (set, frozenset)):
        in_order = sorted(cast("set[Any]", value), key=repr)
        return [to_json(member, f"a member of {place}", depth + 1) for member in in_order]
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, pathlib.PurePath, decimal.Decimal)):
        return well_formed(str(value))
    return _of_library(value, place, depth)


def well_formed(text: str) -> str:
    """Returns the text with U+FFFD in the place of half surrogate pairs, which UTF-8 does not have."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _of_library(value: Any, place: str, depth: int) -> Any:
    kind = cast("Any", type(value))
    if hasattr(kind, "__dataclass_fields__"):
        members = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
        return {name: to_json(member, f"{place}.{name}", depth + 1) for name, member in members.items()}
    # pydantic's models have this method, and numpy's arrays and scalars that one. Neither library is imported for it.
    if hasattr(value, "model_dump") and hasattr(kind, "model_fields"):
        return to_json(value.model_dump(mode="json"), place, depth + 1)
    if kind.__module__.split(".")[0] in ("numpy", "jax", "jaxlib", "torch") and hasattr(value, "tolist"):
        letter = getattr(getattr(value, "dtype", None), "kind", "")
        # Python's dates have no nanoseconds, so `tolist` would make numbers of dates with them.
        plain = value.astype(str).tolist() if letter == "M" else value.tolist()
        # Python has no type for durations with nanoseconds, and none for floats of more than 64 bits.
        if letter != "m" and type(plain) is not kind:
            return to_json(plain, place, depth + 1)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    raise NotJsonError(f"{place} is of the type {name}, which has no JSON form; use numbers, strings, lists and dicts")


def _key(key: Any, place: str) -> str:
    if isinstance(key, str):
        return well_formed(key)
    if isinstance(key, (int, uuid.UUID, datetime.date)) and not isinstance(key, bool):
        return str(key)
    raise NotJsonError(f"a key of {place} is {key!r}, and JSON's keys are strings")

"""The named state: JSON documents that jobs, servers and the command line share.

A field has a name of letters, digits, `_`, `-` and `.`, and any JSON value.
"""

from __future__ import annotations

import json
from typing import Any

from unhang._command import run
from unhang._json import to_json

_NOT_FOUND = 6


def get(field: str, default: Any = None) -> Any:
    """Returns the value of a field, or `default` if nobody has set it."""
    told = run(["state", "get", "--output", "text", "--", field], allowed=(0, _NOT_FOUND))
    return default if told.code == _NOT_FOUND else json.loads(told.stdout)


def set(field: str, value: Any) -> None:  # noqa: A001 - `unhang.state.set` is the name that people expect.
    """Sets a field to a value. The value may be anything that a job may return."""
    run(["state", "set", "--", field, "-"], stdin=json.dumps(to_json(value, "the value")))

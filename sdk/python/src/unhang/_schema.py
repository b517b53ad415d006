"""Reads what a function is, for a server that must never import its module: `describe` does that in a process of its own.

`start` prints name, description and schema of the arguments, as the framework makes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from unhang import _worker
from unhang._errors import UnhangError
from unhang._target import TargetError, check_signature, load

_LIMIT = 300.0
_MARK = "unhang-description: "


@dataclass(frozen=True)
class Description:
    """What a client is told of a tool."""

    name: str
    description: str
    schema: dict[str, Any]


def describe(framework: str, target: str) -> Description:
    """Imports the function in a process of its own, and returns its description. Raises `UnhangError` if that does not work."""
    words = _worker.command("unhang._schema", framework, target)
    environment = {**os.environ, **_worker.environment()}
    try:
        told = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise UnhangError(f"{target} could not be imported within {_LIMIT:g} s") from error
    found = [line.removeprefix(_MARK) for line in told.stdout.splitlines() if line.startswith(_MARK)]
    if told.returncode != 0 or not found:
        last = next((line for line in reversed(told.stderr.splitlines()) if line.strip()), "")
        raise UnhangError(f"{target} cannot be a tool: {last.strip() or f'exit code {told.returncode}'}")
    return Description(**json.loads(found[-1]))


def _main(framework: str, target: str) -> None:
    from unhang._frameworks import of_name

    function = load(target)
    check_signature(function)
    server = of_name(framework).empty()
    server.add_function(function, function.__name__, None)
    tool = asyncio.run(server.listed())[0]
    # What the module prints stands on lines of its own.
    print("\n" + _MARK + json.dumps(tool), flush=True)
    # A thread that the module has started must not keep this process.
    os._exit(0)


def start() -> None:
    """Describes the function that the command line names."""
    try:
        _main(*_worker.begin())
    except TargetError as error:
        sys.exit(str(error))

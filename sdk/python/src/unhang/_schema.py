"""Reads what a function is, for a server that must never import its module: `describe` does that in a process of its own.

`start` prints name, description and schema of the arguments, as the framework makes them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from dataclasses import dataclass
from typing import IO, Any

from unhang import _worker
from unhang._errors import UnhangError
from unhang._secrets import without_secrets
from unhang._target import TargetError, check_signature, load

_LIMIT = 120.0
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
    # Files and no pipes: a process that the module has left keeps a pipe open. stdin is one, and tells that process when this one ends.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=environment, start_new_session=True
        )
        try:
            code = process.wait(_LIMIT)
        except subprocess.TimeoutExpired as error:
            raise UnhangError(f"{target} could not be imported within {_LIMIT:g} s") from error
        finally:
            # Processes that the module has left are in the group. The system gives out a number again only after all others.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        printed, told = _text_of(stdout), _text_of(stderr)
    found = [line.removeprefix(_MARK) for line in printed.splitlines() if line.startswith(_MARK)]
    if code != 0 or not found:
        last = next((line for line in reversed(told.splitlines()) if line.strip()), "")
        how = f"its module ended the process with exit code {code}, or closed stdout"
        raise UnhangError(f"{target} cannot be a tool: {without_secrets(last.strip()) or how}")
    return Description(**json.loads(found[-1]))


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _main(framework: str, target: str) -> None:
    from unhang._frameworks import of_name

    # Whatever becomes of `sys.stdout` in the module.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    function = load(target)
    check_signature(function)
    # What the module prints stands on lines of its own.
    print("\n" + _MARK + json.dumps(of_name(framework).describe(function)), file=output, flush=True)


def _end_with_server() -> None:
    """Ends this process, and those that the module has started, when the server ends: it keeps the other end of stdin open."""
    watched = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def watch() -> None:
        os.read(watched, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="unhang-server", daemon=True).start()


def start() -> None:
    """Describes the function that the command line names."""
    code = 1
    try:
        _end_with_server()
        _main(*_worker.begin())
        code = 0
    except TargetError as error:
        print(error, file=sys.__stderr__)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        print(error.code if isinstance(error.code, str) else "", file=sys.__stderr__)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    # A thread that the module has started must not keep this process.
    if sys.__stderr__ is not None:
        sys.__stderr__.flush()
    os._exit(code)

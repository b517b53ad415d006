"""The process of a job, which `_worker` starts.

The arguments come from `input.json` in the job's folder. The result goes to `results.json`, an exception to `error.json`. Both are written
whole, by a rename. A result of more than 16 MiB goes to a file of its own, and `results.json` has the path.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from unhang import _inside, _worker
from unhang._arguments import typed
from unhang._json import to_json
from unhang._names import ARGUMENTS, ERROR, LARGE_RESULT, LARGE_RESULT_KEY, LARGEST_RESULT, RESULTS
from unhang._secrets import remember, without_secrets
from unhang._target import TargetError, load

_FAILED = 1
_CANCELLED = 143
# Both must fit into one answer of a tool.
_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 12_000


def main(target: str) -> int:
    """Runs the function, and returns the exit code."""
    folder = _inside.job_dir()
    own = os.getpid()
    _inside.begin()
    remember()
    code, name, text = 0, RESULTS, b""
    try:
        text = json.dumps(to_json(_called(load(target), folder)), allow_nan=False, ensure_ascii=False).encode()
    except _inside.Cancelled as error:
        print(error, file=sys.stderr, flush=True)
        code, name = _CANCELLED, ""
    except SystemExit as error:
        code, name, text = _FAILED, ERROR, json.dumps(_of_exit(error)).encode()
    except BaseException as error:
        code, name, text = _FAILED, ERROR, json.dumps(_of_error(error)).encode()
    # The function has ended, so a signal ends this process and interrupts no write.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.getpid() != own:
        # The function has forked, and this copy has returned from it: the result is not its own.
        os._exit(code)
    if name == RESULTS and len(text) > LARGEST_RESULT and _worker.is_on_worker():
        # The path of a file means nothing to those who read the result on another machine.
        message = f"the result has {len(text)} bytes, and that of a job on a worker at most {LARGEST_RESULT}"
        code, name, text = _FAILED, ERROR, json.dumps({"kind": "ResultTooLarge", "message": message}).encode()
    if name == RESULTS and len(text) > LARGEST_RESULT:
        large = folder / LARGE_RESULT
        _replace(large, text)
        text = json.dumps({LARGE_RESULT_KEY: str(large), "bytes": len(text)}).encode()
    if name:
        _replace(folder / name, text)
    return code


def _called(function: Callable[..., Any], folder: Path) -> Any:
    arguments = json.loads((folder / ARGUMENTS).read_text(encoding="utf-8"))
    result = function(**typed(function, arguments))
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def _of_exit(error: SystemExit) -> dict[str, Any]:
    return {"kind": "SystemExit", "message": _bounded(without_secrets(f"the function called sys.exit({error.code!r})"))}


def _of_error(error: BaseException) -> dict[str, Any]:
    if isinstance(error, TargetError):
        return {"kind": "TargetError", "message": _bounded(without_secrets(str(error)))}
    trace = without_secrets(_trace_of(error))
    # A person reads the log, so the whole trace goes there too.
    print(trace, file=sys.stderr, flush=True)
    shown = trace if len(trace) <= _LONGEST_TRACEBACK else "…" + trace[-_LONGEST_TRACEBACK:]
    kind = without_secrets(type(error).__name__)
    return {"kind": _bounded(kind), "message": _bounded(without_secrets(_text_of(error))), "traceback": shown}


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:
        return f"a {type(error).__name__}, whose text cannot be had: {type(failure).__name__}"


def _trace_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return _text_of(error) + "\n" + "".join(traceback.format_tb(error.__traceback__))


def _replace(path: Path, text: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(beside, "xb", opener=_private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _finish(code: int) -> NoReturn:
    """Ends this process. Threads that the function has left do not keep it: the result is written."""
    try:
        # No public function does that and lets this process end without its threads.
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def start() -> None:
    """Runs the function that the command line names, and ends this process."""
    (target,) = _worker.begin()
    _finish(main(target))


def start_on_worker() -> None:
    """Runs the function that the command line names as `start` does, on a worker of a store that machines share."""
    (target,) = _worker.begin_on_worker()
    _finish(main(target))

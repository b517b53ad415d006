"""What a function sees of its job while it runs. Outside of a job, `progress` and `log` do nothing harmful, and `job_dir` is an error."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TextIO, cast

from unhang._errors import UnhangError

_FOLDER = "UNHANG_JOB_DIR"
_LONGEST_MESSAGE = 500

_cancelled = threading.Event()
_output: TextIO | None = None


class Cancelled(BaseException):
    """The job was cancelled, or its time is over. It is raised in the main thread, where the function runs.

    It is no `Exception`, so `except Exception` does not catch it. A moment later unhang ends the process in any case.
    """


class _TrackedOutput(io.TextIOWrapper):
    """stdout that knows whether a line has begun: the progress needs a line of its own."""

    is_at_begin = True

    def write(self, text: str, /) -> int:
        if text:
            _TrackedOutput.is_at_begin = text.endswith("\n")
        return super().write(text)


def begin() -> None:
    """Prepares this process to be a job: progress goes to the first stdout, whatever becomes of `sys.stdout`, and SIGTERM cancels."""
    global _output
    _output = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", buffering=1)
    stdout: object = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        buffer = cast("io.TextIOWrapper[io.BufferedWriter]", stdout).detach()
        sys.stdout = _TrackedOutput(buffer, encoding="utf-8", errors="replace", line_buffering=True)
    signal.signal(signal.SIGTERM, _cancel)


def _cancel(_number: int, _frame: FrameType | None) -> None:
    if not _cancelled.is_set():
        _cancelled.set()
        raise Cancelled("the job was cancelled, or its time is over")


def is_cancelled() -> bool:
    """Returns whether the job was cancelled. For work in other threads, and for loops that catch everything."""
    return _cancelled.is_set()


def progress(fraction: float, message: str | None = None) -> None:
    """Reports the progress of the job, from 0 to 1, with an optional sentence about it.

    A number outside counts as 0 or 1, and what is no number is told on stderr: a wrong report is no reason to lose the work.
    """
    try:
        number = float(fraction)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        log(f"progress is a number from 0 to 1, not {fraction!r}")
        return
    number = min(1.0, max(0.0, number))
    said: dict[str, object] = {"progress": number}
    if message is not None:
        said["message"] = str(message)[:_LONGEST_MESSAGE]
    if _output is None:
        log(f"progress: {number:.0%}" + ("" if message is None else f" {message}"))
        return
    # A function may have closed it, or put nothing in its place.
    stdout: object = sys.stdout
    if isinstance(stdout, io.IOBase) and not stdout.closed:
        stdout.flush()
    begin = "" if _TrackedOutput.is_at_begin else "\n"
    _TrackedOutput.is_at_begin = True
    _output.write(begin + json.dumps(said) + "\n")


def log(message: object) -> None:
    """Writes a line to the job's stderr, which `get_job_logs` shows."""
    print(message, file=sys.stderr, flush=True)


def job_dir() -> Path:
    """Returns the working folder of the job. Files in it stay until the job is removed."""
    folder = os.environ.get(_FOLDER)
    if folder is None:
        raise UnhangError("there is no job folder, because this process is no job")
    return Path(folder)

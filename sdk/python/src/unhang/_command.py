"""Runs one command of the program `unhang`."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass

from unhang import _worker
from unhang._binary import binary
from unhang._errors import UnhangError


@dataclass(frozen=True)
class CommandOutput:
    """What a command has printed, and its exit code."""

    code: int
    stdout: str


def run(
    words: list[str],
    *,
    stdin: str | None = None,
    environment: dict[str, str] | None = None,
    allowed: tuple[int, ...] = (0,),
    limit: float | None = 60.0,
) -> CommandOutput:
    """Runs `unhang` with these words, and raises `UnhangError` with its own sentence if the exit code is another one than allowed."""
    if _worker.is_on_worker():
        raise UnhangError(
            "a job on a worker has neither the jobs nor the state of the store: give it what it needs as arguments, and return the rest"
        )
    try:
        told = subprocess.run(
            [binary(), *words],
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=limit,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise UnhangError(f"`unhang {' '.join(words[:2])}` did not end within {limit:g} s") from error
    if told.returncode not in allowed:
        raise UnhangError(sentence(told.stderr) or f"`unhang {' '.join(words[:2])}` ended with exit code {told.returncode}")
    return CommandOutput(told.returncode, told.stdout)


def sentence(stderr: str) -> str:
    """Returns the message of an error, which is JSON with `--output json`."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    try:
        return str(json.loads(lines[-1])["error"]["message"])
    except (IndexError, KeyError, TypeError, ValueError):
        return " ".join(line.strip().removeprefix("unhang: ") for line in lines)

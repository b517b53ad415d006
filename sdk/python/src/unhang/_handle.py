"""Jobs of scripts and notebooks: `unhang.submit` starts one, and `unhang.get` finds one again, also from another process."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

from unhang import _worker
from unhang._arguments import to_json_arguments
from unhang._command import run
from unhang._errors import JobFailedError, JobRefusedError, UnhangError
from unhang._names import ARGUMENTS, LARGE_RESULT, LARGE_RESULT_KEY, RESULTS
from unhang._target import name_of

_ID = re.compile("[a-z0-9]{1,64}")
_FAILED = 1
_NOT_FOUND = 6
_DEADLINE = 4
_SLACK = 30.0
_LONGEST_WAIT = 86_400.0 * 365

_HOW = {"failed": "has failed", "cancelled": "was cancelled", "lost": "is lost"}

ENDED = ("completed", "failed", "cancelled", "lost")
"""The states in which a job stays for ever."""


class Job:
    """A job, by its id. It holds nothing, so any number of them may stand for one job."""

    def __init__(self, id: str) -> None:  # noqa: A002 - the word of the field.
        # An option of the command line is no id.
        if not _ID.fullmatch(id):
            raise UnhangError(f"{id!r} is not the id of a job")
        self.id = id

    def __repr__(self) -> str:
        return f"unhang.Job({self.id!r})"

    def status(self) -> dict[str, Any]:
        """Returns the record of the job: `status`, `progress`, `created_at` and so on."""
        told = run(["job", "show", self.id, "--output", "json"])
        record: Any = json.loads(told.stdout)
        return cast("dict[str, Any]", record[0] if isinstance(record, list) else record)

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until the job has ended, and returns its result.

        Raises `JobFailedError` if it has ended in another way, and `TimeoutError` if it has not ended within `timeout` seconds. The job
        goes on then.
        """
        words = ["job", "wait", self.id, "--output", "json"]
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"the time to wait is a number of seconds, not {timeout!r}")
        if timeout is not None and timeout > _LONGEST_WAIT:
            timeout = None
        if timeout is not None:
            words += ["--timeout", f"{max(1, round(timeout * 1000))}ms"]
        limit = None if timeout is None else timeout + _SLACK
        told = run(words, allowed=(0, _FAILED, _DEADLINE), limit=limit)
        if told.code == _DEADLINE:
            raise TimeoutError(f"job {self.id} has not ended within {timeout:g} s; it goes on")
        return self.result()

    def result(self) -> Any:
        """Returns the result of a job that has completed. Raises `JobFailedError` if it has ended in another way."""
        status = self.status()
        if status["status"] == "completed":
            return _whole(json.loads(run(["job", "result", self.id]).stdout), status)
        if status["status"] not in ENDED:
            raise UnhangError(f"job {self.id} has no result yet: it is {status['status']}; `wait` waits for the end")
        error = _error_of(self.id)
        detail = status.get("detail") or status.get("reason") or ""
        if error is not None and not error.get("message"):
            detail = f"{detail}: {error.get('kind')}"
        text = f"job {self.id} {_HOW[status['status']]}" + (f": {detail}" if detail else "")
        raise JobFailedError(text, status["status"], status if error is None else {**status, "error": error})

    def logs(self, stream: str = "stdout") -> str:
        """Returns what unhang keeps of the output: `stdout` or `stderr`."""
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"a job has stdout and stderr, and no stream {stream!r}")
        return run(["job", "logs", self.id, *(["--stderr"] if stream == "stderr" else [])]).stdout

    def cancel(self) -> None:
        """Ends the job and all its processes."""
        run(["job", "cancel", self.id])

    async def wait_async(self, timeout: float | None = None) -> Any:
        """Waits as `wait` does, while other tasks go on."""
        return await _aside(partial(self.wait, timeout))

    async def status_async(self) -> dict[str, Any]:
        """Returns what `status` returns, while other tasks go on."""
        return dict(await _aside(self.status))


def submit(
    function: Callable[..., Any],
    /,
    *args: Any,
    job_timeout: str | None = None,
    job_name: str | None = None,
    job_state: str | None = None,
    **kwargs: Any,
) -> Job:
    """Starts a function as a job, and returns at once with its handle.

    The arguments must have a JSON form. `job_timeout` is a text with a unit, such as `"30m"`. `job_name` is the name in lists. `job_state`
    is the field of the state that receives the result.

    Raises `TypeError` if the function cannot be a job or the arguments do not fit, and `JobRefusedError` if unhang does not take it.
    """
    target = name_of(function)
    bound = inspect.signature(function).bind(*args, **kwargs)
    text = json.dumps(to_json_arguments(function, bound.arguments))
    given: dict[str, object] = {"job_timeout": job_timeout, "job_name": job_name, "job_state": job_state}
    for key, value in given.items():
        if not isinstance(value, (str, type(None))):
            raise TypeError(f"{key} is {value!r}, and not a text")
    with tempfile.TemporaryDirectory(prefix="unhang-") as place:
        path = os.path.join(place, ARGUMENTS)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
        # A value that begins with `-` would be an option if it were a word of its own.
        words = ["job", "run", "--output", "json", f"--name={function.__name__ if job_name is None else job_name}"]
        words += ["--input", path, "--result", RESULTS]
        if job_timeout is not None:
            words.append(f"--timeout={job_timeout}")
        if job_state is not None:
            words.append(f"--state={job_state}")
        try:
            told = run([*words, "--", *command(target)], environment=_worker.environment())
        except UnhangError as error:
            raise JobRefusedError(str(error)) from error
    return Job(str(json.loads(told.stdout)["job_id"]))


async def submit_async(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
    """Starts a job as `submit` does, while other tasks go on."""
    job = await _aside(partial(submit, function, *args, **kwargs))
    assert isinstance(job, Job)
    return job


def get(id: str) -> Job:  # noqa: A002 - the word of the field.
    """Finds a job by its id. Raises `UnhangError` if there is none."""
    # `last` and a prefix stand for another job later.
    return Job(str(Job(id).status()["job_id"]))


def _whole(result: Any, status: dict[str, Any]) -> Any:
    """Returns the result, from its own file if it is a large one. A function may return the path of any other file."""
    if "work_folder" not in status:
        # A store of many machines has the result.
        return result
    path = os.path.join(status["work_folder"], LARGE_RESULT)
    if isinstance(result, dict) and cast("dict[str, Any]", result).get(LARGE_RESULT_KEY) == path:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    return cast("Any", result)


def _error_of(id: str) -> dict[str, Any] | None:  # noqa: A002 - the word of the field.
    """Returns kind, message and traceback of the exception with which a job has ended, if there was one."""
    told: Any = json.loads(run(["job", "result", id, "--output", "json"], allowed=(0, _FAILED)).stdout or "{}")
    found = told.get("error")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def list_jobs(limit: int = 100) -> list[dict[str, Any]]:
    """Returns the records of the newest jobs on this data folder, the newest first."""
    records: Any = json.loads(run(["job", "list", "--limit", str(limit), "--output", "json"]).stdout)
    return cast("list[dict[str, Any]]", records["jobs"] if isinstance(records, dict) else records)


def command(target: str) -> list[str]:
    """Returns the command that runs a function as a job."""
    return _worker.command("unhang.run", target)


async def _aside(work: Callable[[], Any]) -> Any:
    """Runs the work in a thread of its own. The loop's own threads are few, and everybody's."""
    outcome: Future[Any] = Future()

    def settle() -> None:
        try:
            result = work()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    # A process that ends does not wait for it.
    threading.Thread(target=settle, name="unhang-wait", daemon=True).start()
    # Nobody can end the thread, so its future stays as it is when the caller is cancelled.
    return await asyncio.shield(asyncio.wrap_future(outcome))

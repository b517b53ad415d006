"""The gateway of a server's jobs: `unhang serve` as a child, with the functions as its tools.

The configuration is a file without a name, so nothing has to be removed afterwards, however this process ends. The child ends when its
stdin closes, and the jobs do not end with it.

Invariants: one child at a time, started at the first request, and another one when the environment has changed. A request is never sent
twice: if the child ends, what became of a submission is unknown, and the error says so.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import IO, Any

from unhang._binary import binary
from unhang._command import sentence
from unhang._errors import UnhangError
from unhang._version import __version__

_PROTOCOL = "2025-11-25"
_START_LIMIT = 30.0

_ANSWER_LIMIT = 120.0
"""The gateway answers within 30 s: `get_job_status` waits for 25 s at most. A later answer does not come."""

_LOST = (
    "the process `unhang serve` of this server ended before it answered; a job that it was about to start may have started: "
    "list_jobs shows it"
)


class GatewayError(UnhangError):
    """The gateway does not answer, or has refused the request."""


class Gateway:
    """Sends requests to the child and hands out its answers. Any thread may use it."""

    def __init__(self) -> None:
        self._tools: list[str] = []
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def add(self, tool: str) -> None:
        """Adds the table of a tool. A child that runs already is replaced at the next request."""
        with self._lock:
            self._tools.append(tool)
            child, self._child = self._child, None
        if child is not None:
            child.close()

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool, and returns the result as MCP has it. Other tasks go on meanwhile."""
        parameters = {"name": name, "arguments": arguments}
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Another library runs the tasks.
            import anyio.to_thread

            return await anyio.to_thread.run_sync(
                lambda: self._running().request("tools/call", parameters).result(_ANSWER_LIMIT)
            )
        # A child takes a moment to start, and nothing may wait for that here.
        child = self._child
        if child is None or not child.is_usable():
            child = await loop.run_in_executor(None, self._running)
        answer = asyncio.wrap_future(child.request("tools/call", parameters), loop=loop)
        try:
            return await asyncio.wait_for(answer, _ANSWER_LIMIT)
        except asyncio.TimeoutError as error:
            raise GatewayError(
                f"`unhang serve` of this server did not answer `{name}` within {_ANSWER_LIMIT:g} s; list_jobs of a new "
                "session shows whether a job has started"
            ) from error

    def _running(self) -> _Child:
        with self._lock:
            if self._child is not None and self._child.is_usable():
                return self._child
            if self._child is not None and self._child.is_own():
                self._child.close()
            self._child = _Child("\n".join(self._tools))
            return self._child


class _Child:
    """One process of the gateway."""

    def __init__(self, configuration: str) -> None:
        self._owner = os.getpid()
        self._environment = dict(os.environ)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._has_ended = False
        with _file_of(configuration) as file:
            self._process = subprocess.Popen(
                _command(file), stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[file.fileno()]
            )
            threading.Thread(target=self._read, name="unhang-gateway", daemon=True).start()
            try:
                self._greet()
            except GatewayError as error:
                self._process.kill()
                raise GatewayError(_why_not_started(configuration) or str(error)) from error
            except BaseException:
                self._process.kill()
                raise

    def is_own(self) -> bool:
        """Returns whether this process has started it. A process that was forked must not use the pipes of its parent."""
        return self._owner == os.getpid()

    def is_usable(self) -> bool:
        """Returns whether it answers, and starts jobs with the environment as it is now."""
        return self.is_own() and not self._has_ended and self._environment == dict(os.environ)

    def close(self) -> None:
        """Asks the process to end. It answers what it is asked already."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def request(self, method: str, parameters: dict[str, Any]) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._has_ended:
                future.set_exception(GatewayError(_LOST))
                return future
            number = next(self._numbers)
            self._waiting[number] = future
        self._send({"id": number, "method": method, "params": parameters})
        return future

    def _greet(self) -> None:
        about = {"name": "unhang-python", "version": __version__}
        greeting = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": about}
        try:
            self.request("initialize", greeting).result(_START_LIMIT)
        except FutureTimeoutError as error:
            raise GatewayError(f"`unhang serve` did not answer `initialize` within {_START_LIMIT:g} s; start it again") from error
        self._send({"method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        stdin: IO[bytes] | None = self._process.stdin
        try:
            with self._lock:
                if stdin is not None:
                    stdin.write(line)
                    stdin.flush()
        except (OSError, ValueError):
            # The reader sees the end, and fails everything that waits.
            pass

    def _read(self) -> None:
        stdout: IO[bytes] | None = self._process.stdout
        for line in stdout or ():
            try:
                self._take(json.loads(line))
            except ValueError:
                continue
        with self._lock:
            self._has_ended = True
            waiting = list(self._waiting.values())
            self._waiting.clear()
        self._process.wait()
        for future in waiting:
            future.set_exception(GatewayError(_LOST))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            if "id" in message:
                self._send({"id": message["id"], **_answer_of_client(message["method"])})
            return
        with self._lock:
            future = self._waiting.pop(message.get("id", 0), None)
        # A caller that was cancelled waits no more.
        if future is None or not future.set_running_or_notify_cancel():
            return
        error = message.get("error")
        if error is None:
            future.set_result(message.get("result") or {})
        else:
            future.set_exception(GatewayError(str(error.get("message", error))))


def _file_of(configuration: str) -> IO[bytes]:
    file = tempfile.TemporaryFile()
    file.write(configuration.encode())
    file.flush()
    return file


def _command(file: IO[bytes]) -> list[str]:
    return [binary(), "serve", "--own", "--config", f"/dev/fd/{file.fileno()}"]


def _why_not_started(configuration: str) -> str:
    """Starts the gateway once more without a client, for the sentence with which it refuses a configuration."""
    with _file_of(configuration) as file:
        told = subprocess.run(
            _command(file),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            pass_fds=[file.fileno()],
            timeout=_START_LIMIT,
        )
    # The place in a file that nobody has written tells nothing.
    return "" if told.returncode == 0 else re.sub(r"^/dev/fd/\d+:\d+:\d+: ", "", sentence(told.stderr))


def _answer_of_client(method: str) -> dict[str, Any]:
    """Returns what this client answers to a request of the gateway: it offers nothing, and lives."""
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": f"this client has no method {method}"}}

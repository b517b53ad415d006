"""The child process behind a server's jobs: what a call gets if the child is killed, or answers no more."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator

import pytest

from unhang import _gateway
from unhang._gateway import Gateway, GatewayError


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    gateway.add('[tools."true"]\ncommand = ["true"]\nmode = "job"\n')
    yield gateway
    child = gateway._child
    assert child is not None
    child.close()
    child._process.wait(20)


def pid_of(gateway: Gateway) -> int:
    assert gateway._child is not None
    return gateway._child._process.pid


def test_a_child_that_answers_no_more_is_an_error_in_time(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await gateway.call("list_jobs", {})
        monkeypatch.setattr(_gateway, "_ANSWER_LIMIT", 1.0)
        os.kill(pid_of(gateway), signal.SIGSTOP)
        try:
            with pytest.raises(GatewayError, match="did not answer `list_jobs` within 1 s"):
                await gateway.call("list_jobs", {})
        finally:
            os.kill(pid_of(gateway), signal.SIGCONT)

    asyncio.run(main())


def test_a_child_that_is_killed_fails_its_calls_and_the_next_call_has_another_one(gateway: Gateway) -> None:
    async def main() -> None:
        await gateway.call("list_jobs", {})
        first = pid_of(gateway)
        os.kill(first, signal.SIGSTOP)
        waiting = asyncio.create_task(gateway.call("list_jobs", {}))
        await asyncio.sleep(0)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(GatewayError, match="list_jobs shows it"):
            await waiting
        deadline = time.monotonic() + 20
        while gateway._child is not None and gateway._child.is_usable():
            assert time.monotonic() < deadline, "its end was not noticed"
            # Between two looks.
            await asyncio.sleep(0.01)
        assert (await gateway.call("list_jobs", {}))["structuredContent"]["jobs"] == []
        assert pid_of(gateway) != first

    asyncio.run(main())


def test_a_changed_environment_is_that_of_the_next_job(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await gateway.call("list_jobs", {})
        first = pid_of(gateway)
        await gateway.call("list_jobs", {})
        assert pid_of(gateway) == first
        child = gateway._child
        monkeypatch.setenv("LATE", "1")
        await gateway.call("list_jobs", {})
        assert pid_of(gateway) != first
        assert child is not None
        child._process.wait(20)

    asyncio.run(main())

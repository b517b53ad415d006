"""Servers with jobs, behind the official client: directly, through the guard and through the gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import unhang
from client import connected, python

Write = Callable[[str, str], Path]

JOB_TOOLS = {"get_job_status", "get_job_results", "get_job_logs", "list_jobs", "terminate_job", "get_system_status"}
STATE_TOOLS = {"get_state", "set_state", "list_state"}

SERVER = """
import os, sys, time
{framework}
import unhang

server = Server("digester")
jobs = unhang.jobs(server)

@jobs.job(timeout="5m", state="simulation_results")
def simulate(cod: float, days: int = 3) -> dict:
    '''Simulates the digester.'''
    for day in range(days):
        unhang.progress(day / days, f"day {{day}}")
    return {{"cod": cod, "days": days}}

@jobs.job
def sleep(seconds: float) -> str:
    open("started", "a").write("x")
    time.sleep(seconds)
    return "slept"

jobs.add("models.design:size")

@server.tool()
def loaded() -> str:
    return ",".join(name for name in sys.modules if name.startswith("models"))

@server.tool()
def pid() -> int:
    return os.getpid()

if __name__ == "__main__":
    server.run()
"""

DESIGN = """
from dataclasses import dataclass

print("the module prints")

@dataclass
class Tank:
    volume: float
    kind: str = "steel"

def size(flow: float, tank: Tank, names: list[str] | None = None) -> dict:
    "Sizes the tank."
    return {"size": flow * tank.volume, "kind": tank.kind, "names": names}
"""


def serve(write: Write, framework: str) -> str:
    write("models/__init__.py", "")
    write("models/design.py", DESIGN)
    return str(write("server.py", SERVER.format(framework=framework)))


def test_a_function_is_a_job_and_its_result_is_in_the_state(write: Write, framework: str) -> None:
    async def main() -> None:
        async with connected(*python(serve(write, framework))) as session:
            tools = await session.tools()
            assert set(tools) >= JOB_TOOLS | STATE_TOOLS | {"simulate", "sleep", "size"}
            assert tools["simulate"].description == "Simulates the digester."
            schema = tools["simulate"].input_schema
            assert schema["required"] == ["cod"] and schema["properties"]["days"]["default"] == 3
            begin = time.monotonic()
            started = await session.call("simulate", cod=4.5)
            assert time.monotonic() - begin < 5 and started["status"] in ("starting", "running", "queued")
            results = await session.ended(started["job_id"])
            assert results["status"] == "completed" and results["results"] == {"cod": 4.5, "days": 3}
            assert (await session.call("get_state", field="simulation_results"))["value"] == {"cod": 4.5, "days": 3}
            assert "day 2" in (await session.call("get_job_logs", job_id=started["job_id"], stream="stdout"))["text"]

    asyncio.run(main())


def test_a_module_that_the_server_never_imports_is_a_job(write: Write, framework: str) -> None:
    async def main() -> None:
        async with connected(*python(serve(write, framework))) as session:
            tool = (await session.tools())["size"]
            assert tool.description == "Sizes the tank."
            assert tool.input_schema["properties"]["tank"]["properties"]["volume"]["type"] == "number"
            results = await session.run("size", flow=2, tank={"volume": 3}, names=["a", "7"])
            assert results["results"] == {"size": 6.0, "kind": "steel", "names": ["a", "7"]}
            assert await session.text("loaded") == ""
            for wrong in ({"flow": "x", "tank": {"volume": 3}}, {"flow": 2}, {"flow": 2, "tank": {"volume": "y"}}):
                assert await session.refused("size", **wrong)
            assert len((await session.call("list_jobs"))["jobs"]) == 1

    asyncio.run(main())


@pytest.mark.parametrize("way", ["wrap", "serve"])
def test_it_works_through_the_guard_and_the_gateway(write: Write, framework: str, way: str, tmp_path: Path) -> None:
    script = serve(write, framework)
    if way == "wrap":
        words, prefix = [unhang.binary(), "wrap", "--", *python(script)], ""
    else:
        command = json.dumps(python(script)[0]), json.dumps([script])
        table = f"[servers.plant]\ncommand = {command[0]}\nargs = {command[1]}\ninherit-env = true\n"
        config = write("unhang.toml", table)
        words, prefix = [unhang.binary(), "serve", "--config", str(config)], "plant__"

    async def main() -> None:
        async with connected(*words) as session:
            started = await session.call(f"{prefix}simulate", cod=1.0)
            status = await session.call(f"{prefix}get_job_status", job_id=started["job_id"], wait_seconds=25)
            assert status["status"] == "completed"
            results = await session.call(f"{prefix}get_job_results", job_id=started["job_id"])
            assert results["results"] == {"cod": 1.0, "days": 3}

    asyncio.run(main())


def test_a_job_outlives_the_server_that_started_it(write: Write, framework: str, tmp_path: Path) -> None:
    script = serve(write, framework)

    async def main() -> str:
        async with connected(*python(script)) as session:
            started = await session.call("sleep", seconds=3)
            os.kill(int(await session.text("pid")), signal.SIGKILL)
            return str(started["job_id"])

    job = unhang.get(asyncio.run(main()))
    assert job.wait(60) == "slept"
    assert (tmp_path / "started").read_text() == "x"


def test_a_job_outlives_the_guard_of_its_server(write: Write, framework: str, tmp_path: Path) -> None:
    script = serve(write, framework)

    async def main() -> str:
        async with connected(unhang.binary(), "wrap", "--", *python(script)) as session:
            return str((await session.call("sleep", seconds=3))["job_id"])

    assert unhang.get(asyncio.run(main())).wait(60) == "slept"
    assert (tmp_path / "started").read_text() == "x"


def test_a_call_waits_for_no_other(write: Write, framework: str) -> None:
    async def main() -> None:
        async with connected(*python(serve(write, framework))) as session:
            started = await session.call("sleep", seconds=60)
            polls = [
                asyncio.create_task(session.call("get_job_status", job_id=started["job_id"], wait_seconds=25))
                for _ in range(60)
            ]
            await asyncio.sleep(0)
            begin = time.monotonic()
            await session.call("list_jobs")
            assert time.monotonic() - begin < 10
            await session.call("terminate_job", job_id=started["job_id"])
            assert {status["status"] for status in await asyncio.gather(*polls)} == {"cancelled"}

    asyncio.run(main())


def test_the_job_tools_are_those_of_the_program(write: Write) -> None:
    config = write("unhang.toml", '[tools.x]\ncommand = ["true"]\nmode = "job"\nresults = "r.json"\nstate = { field = "f" }\n')

    async def main() -> list[dict[str, object]]:
        async with connected(unhang.binary(), "serve", "--own", "--config", str(config)) as session:
            tools = await session.tools()
            tools.pop("x")
            keys = {"description": "description", "inputSchema": "input_schema"}
            return [
                {"name": tool.name, **{key: getattr(tool, attribute) for key, attribute in keys.items()}}
                for tool in tools.values()
            ]

    text = (Path(unhang.__file__).parent / "job_tools.json").read_text(encoding="utf-8")
    assert json.loads(text) == asyncio.run(main())


def test_the_tools_are_added_once_and_a_name_is_given_once() -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("x")
    jobs = unhang.jobs(server)
    assert unhang.jobs(server) is jobs
    jobs.job(module_function)
    with pytest.raises(unhang.UnhangError, match="already"):
        jobs.job(module_function)
    with pytest.raises(TypeError, match="MCPServer"):
        unhang.jobs(object())
    for options, message in [
        ({"name": "two words"}, "not a name"),
        ({"name": "list_jobs"}, "itself offers"),
        ({"name": "a", "timeout": "30 minutes"}, "with a unit"),
        ({"name": "a", "timeout": "30"}, "with a unit"),
        ({"name": "a", "timeout": "0s"}, "with a unit"),
        ({"name": "a", "timeout": "99999999999999999d"}, "at most 100 years"),
        ({"name": "a", "timeout": "9007199254740993w"}, "at most 100 years"),
        ({"name": "a", "state": "a b"}, "state field"),
    ]:
        with pytest.raises(unhang.UnhangError, match=message):
            jobs.job(**options)(module_function)


def test_a_configuration_that_unhang_refuses_is_told_with_its_reason(write: Write, framework: str) -> None:
    text = SERVER.format(framework=framework).replace('jobs.add("models.design:size")', 'os.environ["UNHANG_CALL_TIMEOUT"] = "soon"')

    async def main() -> None:
        async with connected(*python(str(write("server.py", text)))) as session:
            told = await session.refused("simulate", cod=1.0)
            assert "UNHANG_CALL_TIMEOUT" in told and "soon" in told

    asyncio.run(main())


def module_function(number: int) -> int:
    """A function that can be a job."""
    return number

"""Arguments and functions that a job would get differently from a tool: they arrive as they are, or are refused where they are written."""

from __future__ import annotations

import asyncio
import enum
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import pydantic
import pytest

import unhang
from client import connected, python
from unhang._arguments import typed

Write = Callable[[str, str], Path]

SERVER = """
from typing import Optional
import pydantic
{framework}
import unhang

server = Server("arguments")
jobs = unhang.jobs(server)

class Account(pydantic.BaseModel):
    secret: pydantic.SecretStr
    hidden: int = pydantic.Field(0, exclude=True)
    named: int = pydantic.Field(0, alias="ofName")

class Even(pydantic.BaseModel):
    number: int
    @pydantic.field_validator("number")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("it is odd")
        return value

class First(pydantic.BaseModel):
    x: int = 1

class Second(pydantic.BaseModel):
    x: int = 1
    y: int = 2

@jobs.job
def account(account: Account, limit: int = None, note: Optional[str] = None, raw: bytes = b"none") -> list:
    return [account.secret.get_secret_value(), account.hidden, account.named, limit, note, raw.decode()]

@jobs.job
def even(even: Even) -> int:
    return even.number

@jobs.job
def limited(count: int = pydantic.Field(default=7, gt=3)) -> int:
    return count

@jobs.job
def union(item: Second | First) -> str:
    return type(item).__name__

def odd_place() -> str:
    "Speaks of ${{HOME}} and {{braces}}."
    return "here"

if __name__ == "__main__":
    server.run()
"""


def test_arguments_arrive_as_they_came(write: Write, framework: str) -> None:
    async def main() -> None:
        async with connected(*python(str(write("server.py", SERVER.format(framework=framework))))) as session:
            of = {"secret": "hunter2", "hidden": 3, "ofName": 4}
            assert (await session.run("account", account=of))["results"] == ["hunter2", 3, 4, None, None, "none"]
            told = await session.run("account", account=of, limit=5, note="n", raw="bytes")
            assert told["results"] == ["hunter2", 3, 4, 5, "n", "bytes"]
            assert "it is odd" in await session.refused("even", even={"number": 3})
            assert (await session.run("even", even={"number": 4}))["results"] == 4
            assert (await session.run("limited"))["results"] == 7
            assert "greater than 3" in await session.refused("limited", count=1)
            assert (await session.run("union", item={"x": 1, "y": 5}))["results"] == "Second"

    asyncio.run(main())


def test_a_folder_may_have_any_name(write: Write, framework: str) -> None:
    text = SERVER.format(framework=framework).replace("jobs = unhang.jobs(server)", 'jobs = unhang.jobs(server)\njobs.add("places:odd_place")')
    folder = "f{job_dir} ${HOME} {{args.x}} $${x}"
    write(f"{folder}/places.py", 'def odd_place() -> str:\n    "Speaks of ${HOME} and {braces}."\n    return "here"\n')
    script = write(f"{folder}/server.py", text)

    async def main() -> None:
        async with connected(*python(str(script))) as session:
            assert (await session.tools())["odd_place"].description == "Speaks of ${HOME} and {braces}."
            assert (await session.run("odd_place"))["results"] == "here"
            assert (await session.run("even", even={"number": 4}))["results"] == 4

    asyncio.run(main())


class Color(enum.Enum):
    RED = "red"


class Base(pydantic.BaseModel):
    x: int = 1


class Extended(Base):
    y: int = 2


def color(color: Color | str) -> str:
    return type(color).__name__


def base(base: Base) -> int:
    return base.x


def test_an_argument_that_would_change_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    for function, argument in [(color, Color.RED), (base, Extended())]:
        with pytest.raises(TypeError, match="that JSON does not keep"):
            unhang.submit(function, argument)  # type: ignore[arg-type]
    assert unhang.submit(base, Base(x=4)).wait(60) == 4


def anything(value: Any) -> str:
    return type(value).__name__


def whole(value: int) -> int:
    return value


def small(value: Annotated[int, pydantic.Field(le=5)]) -> int:
    return value


def test_an_argument_that_json_changes_silently_is_refused_too() -> None:
    import numpy

    for function, argument in [(anything, numpy.arange(3)), (whole, True)]:
        with pytest.raises(TypeError, match="that JSON does not keep"):
            unhang.submit(function, argument)
    with pytest.raises(TypeError, match="the argument `value` does not fit: .*less than or equal to 5"):
        unhang.submit(small, 9)


def nobody(value: int) -> "Nobody":  # type: ignore[name-defined]  # noqa: F821
    return value


def test_the_type_of_the_result_needs_no_meaning() -> None:
    assert typed(nobody, {"value": 3}) == {"value": 3}


def test_a_parameter_that_the_framework_fills_is_refused() -> None:
    from fastmcp import FastMCP
    from fastmcp.dependencies import Depends

    def function(number, given): ...  # type: ignore[no-untyped-def]

    function.__qualname__ = "function"
    function.__annotations__.update(number=int, given=str)
    function.__defaults__ = (Depends(list),)
    with pytest.raises(unhang.UnhangError, match="does not offer the parameter `given`"):
        unhang.jobs(FastMCP("x")).job(function)


def servers() -> list[Any]:
    from fastmcp import FastMCP
    from mcp.server.mcpserver import MCPServer

    return [MCPServer("x"), FastMCP("x")]


def test_two_functions_of_one_name_are_refused() -> None:
    for server in servers():
        jobs = unhang.jobs(server)
        jobs.job(name="one")(base)
        other: Any = {}
        exec("def base(base: int) -> int: return base", {"__name__": __name__}, other)
        with pytest.raises(TypeError, match="stands for another function"):
            jobs.job(name="two")(other["base"])


def test_a_context_is_refused() -> None:
    import fastmcp
    import mcp.server.mcpserver

    for kind in (fastmcp.Context, mcp.server.mcpserver.Context, Optional[fastmcp.Context]):
        def function(context): ...  # type: ignore[no-untyped-def]

        function.__qualname__ = "function"
        function.__annotations__["context"] = kind
        for server in servers():
            with pytest.raises(TypeError, match="unhang.progress"):
                unhang.jobs(server).job(function)


def test_a_name_of_the_server_is_not_taken_away() -> None:
    for server in servers():
        server.add_tool(list_jobs)
        with pytest.raises(unhang.UnhangError, match="list_jobs"):
            unhang.jobs(server)
    for server in servers():
        server.add_tool(base)
        with pytest.raises(unhang.UnhangError, match="has a tool `base` already"):
            unhang.jobs(server).job(base)


def list_jobs() -> str:
    """A tool of somebody else."""
    return ""


def test_a_module_that_leaves_processes_keeps_nobody(write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    write("leaves.py", "import os, subprocess, sys\nsubprocess.Popen(['sleep', '600'])\nsys.stdout = None\ndef f() -> int: return 1\n")
    write("ends.py", "import os\nos._exit(0)\n")
    begin = time.monotonic()
    for server in servers():
        unhang.jobs(server).add("leaves:f")
        with pytest.raises(unhang.UnhangError, match="ended the process with exit code 0"):
            unhang.jobs(server).add("ends:f")
    assert time.monotonic() - begin < 60


def test_a_module_that_leaves_a_thread_keeps_nobody(write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("THE_TOKEN", "hunter2-hunter2")
    thread = "import os, threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
    write("typo.py", thread + "def f() -> int: return 1\n")
    write("broken.py", thread + "raise ValueError('no licence for ' + os.environ['THE_TOKEN'])\n")
    begin = time.monotonic()
    for server in servers():
        with pytest.raises(unhang.UnhangError, match="has no function g"):
            unhang.jobs(server).add("typo:g")
        with pytest.raises(unhang.UnhangError, match=r"ValueError: no licence for \[THE_TOKEN\]"):
            unhang.jobs(server).add("broken:f")
    assert time.monotonic() - begin < 60


def test_the_reader_of_a_signature_ends_with_the_server(write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    write("slow.py", "import os, time\nopen('begun', 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    script = "from unhang._schema import describe\ndescribe('mcp', 'slow:f')\n"
    server = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() or not (tmp_path / "begun").read_text():
        assert time.monotonic() < deadline, "the module was not imported"
        # Between two looks at a file.
        time.sleep(0.01)
    server.kill()
    server.wait(20)
    # That the reader has gone too, the fixture of every test checks.

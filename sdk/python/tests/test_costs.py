"""What jobs cost a server that has them: no import of their modules, and little memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from client import connected, python

Write = Callable[[str, str], Path]

MODULES = 5
MOST_MORE = 5 << 20
"""The most bytes that a server may need for its jobs."""

HEAD = """
import os, sys
{framework}
server = Server("plain")

@server.tool()
def loaded() -> str:
    return ",".join(name for name in sys.modules if name.startswith("heavy"))

@server.tool()
def memory() -> int:
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
"""

PLAIN = """
def tool(number: float, name: str = "x") -> dict:
    return {}
for index in range(5):
    server.tool(name=f"tool{index}")(tool)
server.run()
"""

JOBS = """
import unhang
jobs = unhang.jobs(server)
for index in range(5):
    jobs.add(f"heavy{index}:tool", name=f"tool{index}")
server.run()
"""


def test_a_server_imports_no_module_of_its_jobs_and_needs_little_memory_for_them(write: Write, framework: str) -> None:
    for index in range(MODULES):
        write(f"heavy{index}.py", "import numpy\ndef tool(number: float, name: str = 'x') -> dict:\n    return {}\n")
    head = HEAD.format(framework=framework)
    scripts = [write(f"{name}.py", head + tail) for name, tail in (("plain", PLAIN), ("jobs", JOBS))]

    async def needed(script: Path) -> int:
        async with connected(*python(str(script))) as session:
            assert {f"tool{index}" for index in range(MODULES)} <= set(await session.tools())
            await session.call("tool0", number=1)
            assert await session.text("loaded") == ""
            return int(await session.text("memory"))

    plain, jobs = [asyncio.run(needed(script)) for script in scripts]
    assert jobs - plain <= MOST_MORE, f"{(jobs - plain) / (1 << 20):.1f} MiB more"

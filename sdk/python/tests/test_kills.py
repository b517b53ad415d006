"""Servers that are killed while they start jobs: what was answered runs to its end, and nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import unhang
from client import connected, python

Write = Callable[[str, str], Path]

ROUNDS = int(os.environ.get("UNHANG_ROUNDS", "4"))
CALLS = 4

SERVER = """
import os
from mcp.server.mcpserver import MCPServer
import unhang

server = MCPServer("killed")
jobs = unhang.jobs(server)

@jobs.job
def note(token: str) -> str:
    file = os.open("ran", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, (token + "\\n").encode())
    return token

@server.tool()
def pid() -> int:
    return os.getpid()

if __name__ == "__main__":
    server.run()
"""


async def one_round(script: str, number: int, moment: float) -> dict[str, str | None]:
    """Kills the server at a moment after the calls. Returns the token of each call, with the id of its job if it was answered."""
    answered: dict[str, str | None] = {f"{number}-{call}": None for call in range(CALLS)}
    async with connected(*python(script)) as session:
        server = int(await session.text("pid"))

        async def call(token: str) -> None:
            answered[token] = (await session.call("note", token=token))["job_id"]

        calls = [asyncio.create_task(call(token)) for token in answered]
        # A moment at which the server is killed, and no wait for anybody.
        await asyncio.sleep(moment)
        os.kill(server, signal.SIGKILL)
        await asyncio.gather(*calls, return_exceptions=True)
    return answered


def test_what_was_answered_runs_once(write: Write, tmp_path: Path) -> None:
    script = str(write("server.py", SERVER))
    moments = random.Random(26)
    answered: dict[str, str | None] = {}
    for number in range(ROUNDS):
        answered |= asyncio.run(one_round(script, number, moments.uniform(0, 0.15)))
    for token, job in answered.items():
        if job is not None:
            assert unhang.get(job).wait(120) == token
    # Jobs whose ids were not answered may have started, and end too.
    for record in unhang.list_jobs(1000):
        unhang.Job(record["job_id"]).wait(120)
    ran = (tmp_path / "ran").read_text().split() if (tmp_path / "ran").exists() else []
    given = [token for token, job in answered.items() if job is not None]
    print(f"{ROUNDS} rounds: {len(answered)} calls, {len(given)} answered, {len(ran)} ran")
    assert len(ran) == len(set(ran)), "a job ran twice"
    assert set(given) <= set(ran) <= set(answered), "a job was lost"

"""The official client in front of a server, as tests use it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


class Session:
    """A session with a server."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def tools(self) -> dict[str, Any]:
        """Returns the tools by their names."""
        return {tool.name: tool for tool in (await self.session.list_tools()).tools}

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Calls a tool, and returns its structured answer. Fails if the tool has failed."""
        result = await self.session.call_tool(name, arguments)
        assert not result.is_error, result
        return dict(result.structured_content or {})

    async def text(self, name: str, **arguments: Any) -> str:
        """Calls a tool, and returns its text."""
        result = await self.session.call_tool(name, arguments)
        return "\n".join(block.text for block in result.content if block.type == "text")

    async def refused(self, name: str, **arguments: Any) -> str:
        """Calls a tool that has to refuse, and returns its text."""
        result = await self.session.call_tool(name, arguments)
        assert result.is_error, result
        return "\n".join(block.text for block in result.content if block.type == "text")

    async def ended(self, job: str) -> dict[str, Any]:
        """Waits for the end of a job, and returns its results."""
        for _ in range(8):
            status = await self.call("get_job_status", job_id=job, wait_seconds=25)
            if status["status"] not in ("queued", "starting", "running"):
                return await self.call("get_job_results", job_id=job)
        raise AssertionError(f"job {job} has not ended")

    async def run(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Starts a job and returns its results."""
        return await self.ended((await self.call(name, **arguments))["job_id"])


@asynccontextmanager
async def connected(*words: str) -> AsyncIterator[Session]:
    """Starts a server by its command, and opens a session."""
    parameters = StdioServerParameters(command=words[0], args=list(words[1:]), env=dict(os.environ))
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield Session(session)


def python(script: str) -> list[str]:
    """Returns the command of a script."""
    return [sys.executable, script]

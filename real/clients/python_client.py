"""Walks through a scenario with the official Python SDK and writes down what it saw.

Usage: python_client.py PLAN. The plan is JSON: `command` and `folder` of the server, `environment` for it, `era`
(`legacy` shakes hands, `auto` asks `server/discover` first), `steps`, and `transcript`, the file to write. What a
step must have brought is not judged here: the caller reads the transcript.
"""

import asyncio
import json
import sys
import warnings
from collections import Counter
from pathlib import Path

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

STATELESS = "2026-07-28"
AWAIT_LIMIT_SECONDS = 20


class Scenario:
    """One session: the callbacks that a server may use, and what each step brought."""

    def __init__(self, plan):
        self.plan = plan
        self.seen = Counter()
        self.changed = asyncio.Event()
        self.client = None

    def note(self, what):
        self.seen[what] += 1
        self.changed.set()

    async def sampling(self, context, params):
        self.note("sampling")
        answer = types.TextContent(type="text", text="sampled by the Python client")
        return types.CreateMessageResult(role="assistant", content=answer, model="none", stop_reason="endTurn")

    async def elicitation(self, context, params):
        self.note("elicitation")
        if getattr(params, "mode", "form") == "url":
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": "Ada", "check": True})

    async def roots(self, context):
        self.note("roots")
        return types.ListRootsResult(roots=[types.Root(uri=Path(self.plan["folder"]).as_uri(), name="here")])

    async def logged(self, params):
        self.note("log")

    async def heard(self, message):
        if isinstance(message, types.ResourceUpdatedNotification):
            self.note("update")

    async def progressed(self, progress, total, message):
        self.note("progress")

    async def awaited(self, step):
        async with asyncio.timeout(AWAIT_LIMIT_SECONDS):
            while self.seen[step["seen"]] < step["least"]:
                self.changed.clear()
                await self.changed.wait()

    async def perform(self, step):
        client = self.client
        match step["do"]:
            case "ping":
                return await client.send_ping()
            case "list_tools":
                return await client.list_tools()
            case "list_resources":
                return await client.list_resources()
            case "list_templates":
                return await client.list_resource_templates()
            case "list_prompts":
                return await client.list_prompts()
            case "call":
                callback = self.progressed if step.get("progress") else None
                return await client.call_tool(step["tool"], step["arguments"], progress_callback=callback)
            case "read":
                return await client.read_resource(step["uri"])
            case "prompt":
                return await client.get_prompt(step["prompt"], step["arguments"])
            case "complete":
                reference = types.PromptReference(type="ref/prompt", name=step["prompt"])
                return await client.complete(reference, step["argument"])
            case "level":
                return await client.set_logging_level(step["level"])
            case "subscribe":
                return await client.subscribe_resource(step["uri"])
            case "unsubscribe":
                return await client.unsubscribe_resource(step["uri"])
            case unknown:
                raise SystemExit(f"this client cannot {unknown}")

    async def outcome(self, step):
        if step.get("handshake_only") and self.client.protocol_version == STATELESS:
            return {"skipped": True}
        if step["do"] == "await":
            await self.awaited(step)
            return {"result": dict(self.seen)}
        if step["do"] == "together":
            return {"together": await asyncio.gather(*(self.outcome(each) for each in step["steps"]))}
        try:
            result = await self.perform(step)
        except MCPError as error:
            return {"error": {"code": error.error.code, "message": error.error.message}}
        return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}

    async def run(self):
        command, *arguments = self.plan["command"]
        server = StdioServerParameters(
            command=command, args=arguments, env=self.plan["environment"], cwd=self.plan["folder"]
        )
        outcomes = []
        async with Client(
            server,
            mode=self.plan["era"],
            sampling_callback=self.sampling,
            elicitation_callback=self.elicitation,
            list_roots_callback=self.roots,
            logging_callback=self.logged,
            message_handler=self.heard,
        ) as client:
            self.client = client
            version = client.protocol_version
            for step in self.plan["steps"]:
                outcomes.append(await self.outcome(step))
        return {"version": version, "outcomes": outcomes, "seen": dict(self.seen)}


def main():
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    transcript = asyncio.run(Scenario(plan).run())
    Path(plan["transcript"]).write_text(json.dumps(transcript, ensure_ascii=False), encoding="utf-8")


main()

"""Walks through a scenario with the official Python SDK and writes down what it saw.

Usage: python_client.py PLAN. The plan is JSON: `url` of the server, or its `command` with `folder` and `environment`
for it, `era` (`legacy` shakes hands, `auto` asks `server/discover` first), `steps`, `meeting`, the folder in which it
is said that a step has been reached, and `transcript`, the file to write. What a step must have brought is not judged
here: the caller reads the transcript.
"""

import asyncio
import json
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

STATELESS = "2026-07-28"
AWAIT_LIMIT_SECONDS = 20
BETWEEN_LOOKS_SECONDS = 0.02


def plain(model):
    """Returns what a model of the SDK has, as it is on the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Scenario:
    """One session: the callbacks that a server may use, and what each step brought."""

    def __init__(self, plan):
        self.plan = plan
        self.heard = defaultdict(list)
        self.changed = asyncio.Event()
        self.client = None
        self.listening = None

    def note(self, what, params=None):
        self.heard[what].append(params)
        self.changed.set()

    def seen(self):
        return {what: len(all) for what, all in self.heard.items()}

    async def sampling(self, context, params):
        self.note("sampling", plain(params))
        answer = types.TextContent(type="text", text="sampled by the Python client")
        return types.CreateMessageResult(role="assistant", content=answer, model="none", stop_reason="endTurn")

    async def elicitation(self, context, params):
        self.note("elicitation", plain(params))
        if getattr(params, "mode", "form") == "url":
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": "Ada", "check": True})

    async def roots(self, context):
        self.note("roots")
        return types.ListRootsResult(roots=[types.Root(uri=Path(self.plan["folder"]).as_uri(), name="here")])

    async def logged(self, params):
        self.note("log", plain(params))

    async def notified(self, message):
        match message:
            case types.ResourceUpdatedNotification():
                self.note("update", plain(message.params))
            case types.ResourceListChangedNotification():
                self.note("changed")

    async def listen(self, uri, honored):
        """Hears of changes as 2026-07-28 has it. They come to where those of older revisions do."""
        try:
            async with self.client.listen(resources_list_changed=True, resource_subscriptions=[uri]) as subscription:
                honored.set_result(None)
                async for _ in subscription:
                    pass
        except Exception as error:
            if honored.done():
                raise
            honored.set_exception(error)

    async def subscribe(self, uri):
        if self.client.protocol_version != STATELESS:
            return await self.client.subscribe_resource(uri)
        honored = asyncio.get_running_loop().create_future()
        self.listening = asyncio.create_task(self.listen(uri, honored))
        await honored
        return types.EmptyResult()

    async def unsubscribe(self, uri):
        if self.client.protocol_version != STATELESS:
            return await self.client.unsubscribe_resource(uri)
        self.listening.cancel()
        await asyncio.wait([self.listening])
        return types.EmptyResult()

    async def call(self, step, told):
        async def progressed(progress, total, message):
            told.append({"progress": progress, "total": total, "message": message})
            self.note("progress")

        callback = progressed if step.get("progress") else None
        return await self.client.call_tool(step["tool"], step["arguments"], progress_callback=callback)

    async def meet(self, name):
        """Says that this step has been reached, and waits for leave to go on."""
        folder = Path(self.plan["meeting"])
        (folder / f"{name}.here").touch()
        async with asyncio.timeout(AWAIT_LIMIT_SECONDS):
            while not (folder / f"{name}.go").exists():
                await asyncio.sleep(BETWEEN_LOOKS_SECONDS)

    async def awaited(self, step):
        async with asyncio.timeout(AWAIT_LIMIT_SECONDS):
            while len(self.heard[step["seen"]]) < step["least"]:
                self.changed.clear()
                await self.changed.wait()

    async def perform(self, step, told):
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
                return await self.call(step, told)
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
                return await self.subscribe(step["uri"])
            case "unsubscribe":
                return await self.unsubscribe(step["uri"])
            case unknown:
                raise SystemExit(f"this client cannot {unknown}")

    async def outcome(self, step):
        if step.get("handshake_only") and self.client.protocol_version == STATELESS:
            return {"skipped": True}
        if step["do"] == "await":
            await self.awaited(step)
            return {"result": self.seen()}
        if step["do"] == "meet":
            await self.meet(step["name"])
            return {"result": {}}
        if step["do"] == "together":
            return {"together": await asyncio.gather(*(self.outcome(each) for each in step["steps"]))}
        told = []
        try:
            outcome = {"result": plain(await self.perform(step, told))}
        except MCPError as error:
            outcome = {"error": plain(error.error)}
        return outcome | ({"progress": told} if told else {})

    def server(self):
        if "url" in self.plan:
            return self.plan["url"]
        command, *arguments = self.plan["command"]
        return StdioServerParameters(
            command=command, args=arguments, env=self.plan["environment"], cwd=self.plan["folder"]
        )

    async def run(self):
        outcomes = []
        async with Client(
            self.server(),
            mode=self.plan["era"],
            sampling_callback=self.sampling,
            elicitation_callback=self.elicitation,
            list_roots_callback=self.roots,
            logging_callback=self.logged,
            log_level="debug",
            message_handler=self.notified,
        ) as client:
            self.client = client
            version = client.protocol_version
            server = {
                "info": plain(client.server_info) if client.server_info else None,
                "capabilities": plain(client.server_capabilities),
                "instructions": client.instructions,
            }
            for step in self.plan["steps"]:
                outcomes.append(await self.outcome(step))
        return {"version": version, "server": server, "outcomes": outcomes, "heard": self.heard}


def main():
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    transcript = asyncio.run(Scenario(plan).run())
    Path(plan["transcript"]).write_text(json.dumps(transcript, ensure_ascii=False), encoding="utf-8")


main()

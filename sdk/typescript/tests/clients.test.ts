/**
 * The official clients of the other language: Python's in front of a server in TypeScript, and the other way round, each directly, through
 * the guard and through the gateway.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { describe, test } from "node:test";

import { connected, imports, SDKS, waysTo, workplace } from "./support.js";

const CLIENT = `
import asyncio, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    prefix, command, *arguments = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        started = (await session.call_tool(prefix + "add", {"a": 40, "b": 2})).structured_content
        job = {"job_id": started["job_id"]}
        status = await session.call_tool(prefix + "get_job_status", {**job, "wait_seconds": 25})
        assert status.structured_content["status"] == "completed", status
        print((await session.call_tool(prefix + "get_job_results", job)).structured_content["results"])

asyncio.run(main())
`;

const SERVER = `
from FRAMEWORK
import unhang

server = Server("adder")
jobs = unhang.jobs(server)

@jobs.job
def add(a: int, b: int) -> int:
    return a + b

if __name__ == "__main__":
    server.run()
`;

const FRAMEWORKS = ["mcp.server.mcpserver import MCPServer as Server", "fastmcp import FastMCP as Server"];

/** Python with the official SDK and the package `unhang`. */
const python = (): string => process.env["UNHANG_PYTHON"] ?? assert.fail("UNHANG_PYTHON is a Python with mcp, fastmcp and unhang");

describe("the clients of both languages", () => {
  const place = workplace();

  for (const sdk of SDKS) {
    test(`Python's client in front of a server of ${sdk}`, () => {
      place().write("work.js", "export const add = ({ a, b }) => a + b;");
      const script = `${imports(sdk)}
const server = new McpServer({ name: "adder", version: "1" });
jobs(server).job("add", { inputSchema: z.object({ a: z.number(), b: z.number() }), module: "./work.js", export: "add" });
await server.connect(new StdioServerTransport());
`;
      const client = place().write("client.py", CLIENT);
      for (const { command, prefix } of waysTo(place(), [process.execPath, place().write("server.js", script)])) {
        const told = execFileSync(python(), [client, prefix, ...command], { encoding: "utf8", timeout: 60_000 });
        assert.equal(told.trim(), "42", command.join(" "));
      }
    });
  }

  for (const framework of FRAMEWORKS) {
    test(`TypeScript's client in front of a server with ${framework}`, async () => {
      const script = place().write("server.py", SERVER.replace("FRAMEWORK", framework));
      for (const { command, prefix } of waysTo(place(), [python(), script])) {
        await connected(command, async (session) => {
          assert.equal((await session.run("add", { a: 40, b: 2 }, prefix))["results"], 42, command.join(" "));
        });
      }
    });
  }
});

/** The child process behind a server's jobs: what a call gets if the child is killed, or answers no more. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { connected, imports, workplace } from "./support.js";
import { readFileSync, readdirSync } from "node:fs";

describe("the child of the gateway", () => {
  const place = workplace();
  const serve = () => {
    place().write("work.js", "export default () => 1;");
    const script = `${imports("server")}
const server = new McpServer({ name: "x", version: "1" });
jobs(server).job("work", { module: "./work.js" });
server.registerTool("pid", {}, async () => ({ content: [{ type: "text", text: String(process.pid) }] }));
await server.connect(new StdioServerTransport());
`;
    return [process.execPath, place().write("server.js", script)];
  };

  /** The child of a process that runs `unhang serve`. */
  const childOf = (parent: string): number => {
    const found = readdirSync("/proc").filter((name) => {
      try {
        const [, rest = ""] = readFileSync(`/proc/${name}/stat`, "utf8").split(") ");
        return rest.split(" ")[1] === parent && readFileSync(`/proc/${name}/cmdline`, "utf8").includes("\0serve\0");
      } catch {
        return false;
      }
    });
    assert.equal(found.length, 1, String(found));
    return Number(found[0]);
  };

  test("a child that is killed fails its calls, and the next call has another one", () =>
    connected(serve(), async (session) => {
      await session.call("list_jobs");
      const parent = await session.text("pid");
      const first = childOf(parent);
      process.kill(first, "SIGSTOP");
      const waiting = session.refused("list_jobs");
      // The server has got the call before this one is answered.
      await session.text("pid");
      process.kill(first, "SIGKILL");
      assert.match(await waiting, /list_jobs shows it/);
      assert.deepEqual((await session.call("list_jobs"))["jobs"], []);
      assert.notEqual(childOf(parent), first);
    }));

  test("a call that the client cancels does not wait for the child", () =>
    connected(serve(), async (session) => {
      await session.call("list_jobs");
      const child = childOf(await session.text("pid"));
      process.kill(child, "SIGSTOP");
      const controller = new AbortController();
      const waiting = session.client.callTool({ name: "list_jobs", arguments: {} }, { signal: controller.signal });
      // The server has got the call before this one is answered.
      await session.text("pid");
      controller.abort();
      await assert.rejects(waiting);
      // The session goes on, and its end does not wait for the child: `connected` closes it.
      await session.text("pid");
      process.kill(child, "SIGCONT");
    }));
});

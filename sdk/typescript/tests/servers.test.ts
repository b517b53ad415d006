/** Servers with jobs, behind the official client: directly, through the guard and through the gateway. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { binary, get, guard, jobs, UnhangError } from "@unhang/jobs";
import { McpServer } from "@modelcontextprotocol/server";
import * as z from "zod";
import { McpServer as FirstMcpServer } from "@modelcontextprotocol/sdk/server/mcp.js";

import { connected, imports, SDKS, type Sdk, waysTo, workplace } from "./support.js";

const PACKAGE = import.meta.resolve("@unhang/jobs/package.json");
const STATE_TOOLS = ["get_state", "list_state", "set_state"];
const JOB_TOOLS = ["get_job_logs", "get_job_results", "get_job_status", "get_system_status", "list_jobs", "terminate_job"];

const SERVER = (sdk: Sdk) => `${imports(sdk)}
const server = new McpServer({ name: "digester", version: "1.0.0" });
const durable = jobs(server);
durable.job("simulate", {
  description: "Simulates the digester.",
  inputSchema: z.object({ cod: z.number().describe("kg/m3"), days: z.number().int().default(3) }),
  module: "./models.js",
  export: "simulate",
  timeout: "5m",
  state: "simulation_results",
});
durable.job("nap", { inputSchema: z.object({ seconds: z.number() }), module: new URL("./models.js", import.meta.url), export: "nap" });
durable.job("fail", { module: "./models.js", export: "fail" });
server.registerTool("pid", { description: "The process id." }, async () => ({ content: [{ type: "text", text: String(process.pid) }] }));
await server.connect(new StdioServerTransport());
`;

const MODELS = `
import { appendFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";

appendFileSync("imported", "x");

export async function simulate({ cod, days }, job) {
  for (let day = 0; day < days; day++) {
    job.progress(day / days, "day " + day);
  }
  return { cod, days };
}

export async function nap({ seconds }, job) {
  appendFileSync("started", "x");
  await wait(seconds * 1000, undefined, { signal: job.signal });
  return "slept";
}

export function fail() {
  throw new RangeError("it is negative");
}
`;

for (const sdk of SDKS) {
  describe(`a server of ${sdk}`, () => {
    const place = workplace();
    const serve = () => {
      place().write("models.js", MODELS);
      return [process.execPath, place().write("server.js", SERVER(sdk))];
    };

    test("a function is a job, and its result is in the state", () =>
      connected(serve(), async (session) => {
        const { tools } = await session.client.listTools();
        assert.deepEqual(tools.map((tool) => tool.name).sort(), [...JOB_TOOLS, ...STATE_TOOLS, "fail", "nap", "pid", "simulate"].sort());
        const simulate = tools.find((tool) => tool.name === "simulate");
        assert.equal(simulate?.description, "Simulates the digester.");
        assert.deepEqual(simulate?.inputSchema.required, ["cod"]);
        const started = await session.call("simulate", { cod: 4.5 });
        assert.ok(["queued", "starting", "running"].includes(started["status"]), JSON.stringify(started));
        const results = await session.ended(started["job_id"]);
        assert.deepEqual([results["status"], results["results"]], ["completed", { cod: 4.5, days: 3 }]);
        assert.deepEqual((await session.call("get_state", { field: "simulation_results" }))["value"], { cod: 4.5, days: 3 });
        const logs = await session.call("get_job_logs", { job_id: started["job_id"], stream: "stdout" });
        assert.match(logs["text"], /day 2/);
        // Only the job has imported the module.
        assert.equal(place().read("imported"), "x");
      }));

    test("arguments that do not fit are refused before a job, and an error is told", () =>
      connected(serve(), async (session) => {
        assert.match(await session.refused("simulate", { cod: "x" }), /cod/);
        assert.match(await session.refused("simulate"), /cod/);
        assert.match(await session.refused("get_job_status", { job_id: "aaaaaaaaaaaa" }), /aaaaaaaaaaaa/);
        assert.deepEqual((await session.call("list_jobs"))["jobs"], []);
        const results = await session.run("fail");
        assert.equal(results["status"], "failed");
        assert.match(JSON.stringify(results), /it is negative/);
      }));

    test("the tools about jobs have the descriptions and defaults of the program", () =>
      connected(serve(), async (session) => {
        const told = JSON.parse(readFileSync(fileURLToPath(new URL("dist/job_tools.json", PACKAGE)), "utf8"));
        const { tools } = await session.client.listTools();
        for (const expected of told) {
          const tool = tools.find(({ name }) => name === expected.name);
          assert.equal(tool?.description, expected.description);
          const members = (tool?.inputSchema.properties ?? {}) as Record<string, Record<string, unknown>>;
          for (const [name, schema] of Object.entries(expected.inputSchema.properties as Record<string, Record<string, unknown>>)) {
            for (const [key, value] of Object.entries(schema)) {
              assert.deepEqual(members[name]?.[key], value, `${expected.name}.${name}.${key}`);
            }
          }
          assert.deepEqual(tool?.inputSchema.required ?? [], expected.inputSchema.required);
        }
      }));

    test("a cancelled job ends", () =>
      connected(serve(), async (session) => {
        const started = await session.call("nap", { seconds: 600 });
        await session.call("terminate_job", { job_id: started["job_id"] });
        assert.equal((await session.ended(started["job_id"]))["status"], "cancelled");
      }));

    test("a job outlives the server that started it", async () => {
      const id = await connected(serve(), async (session) => {
        const started = await session.call("nap", { seconds: 3 });
        process.kill(Number(await session.text("pid")), "SIGKILL");
        return started["job_id"] as string;
      });
      assert.equal(await (await get(id)).wait(60_000), "slept");
      assert.equal(place().read("started"), "x");
    });

    test("a job outlives the guard of its server", async () => {
      const [program = "", ...words] = serve();
      const guarded = guard(program, words);
      const id = await connected([guarded.command, ...guarded.args], async (session) => {
        return (await session.call("nap", { seconds: 3 }))["job_id"] as string;
      });
      assert.equal(await (await get(id)).wait(60_000), "slept");
      assert.equal(place().read("started"), "x");
    });

    test("a call waits for no other", () =>
      connected(serve(), async (session) => {
        const { job_id } = await session.call("nap", { seconds: 600 });
        const polls = Array.from({ length: 60 }, () => session.call("get_job_status", { job_id, wait_seconds: 25 }));
        const begin = Date.now();
        await session.call("list_jobs");
        assert.ok(Date.now() - begin < 10_000);
        await session.call("terminate_job", { job_id });
        assert.deepEqual(new Set((await Promise.all(polls)).map((status) => status["status"])), new Set(["cancelled"]));
      }));

    test("it works directly, through the guard and through the gateway", async () => {
      for (const { command, prefix } of waysTo(place(), serve())) {
        await connected(command, async (session) => {
          assert.deepEqual((await session.run("simulate", { cod: 1 }, prefix))["results"], { cod: 1, days: 3 });
        });
      }
    });
  });
}

describe("the tools of a server", () => {
  const place = workplace();

  test("wrong names, times and modules are told where they are written", () => {
    for (const server of [new McpServer({ name: "x", version: "1" }), new FirstMcpServer({ name: "x", version: "1" })]) {
      const durable = jobs(server);
      assert.equal(jobs(server), durable);
      const module = place().write("work.js", "export default () => 1;");
      durable.job("work", { module });
      const wrong = (name: string, options: object, message: RegExp) =>
        assert.throws(() => durable.job(name, { module, ...options }), (error) => error instanceof UnhangError && message.test(error.message));
      wrong("work", {}, /already/);
      wrong("two words", {}, /not a name/);
      wrong("list_jobs", {}, /itself offers/);
      wrong("a", { timeout: "30 minutes" }, /with a unit/);
      wrong("a", { timeout: "30" }, /with a unit/);
      wrong("a", { state: "a b" }, /state field/);
      wrong("a", { timeout: "0s" }, /with a unit/);
      wrong("a", { export: 5 }, /name of the function as a text/);
      wrong("a", { export: () => 1 }, /name of the function as a text/);
      wrong("a", { module: undefined }, /`module` is missing/);
      wrong("a", { module: "./" }, /there is no module/);
      wrong("a", { inputSchema: z.object({ when: z.date() }) }, /`a` cannot be told to clients/);
      wrong("a", { inputSchema: z.string() }, /not that of one object.*"string"/);
      wrong("a", { inputSchema: z.union([z.object({ a: z.number() }), z.object({ b: z.number() })]) }, /not that of one object.*as a union/);
      wrong("a", { inputSchema: null }, /inputSchema of `a` is null/);
      wrong("a", { timeout: "99999999999999999d" }, /at most 100 years/);
      wrong("a", { timeout: "9007199254740993w" }, /at most 100 years/);
      wrong(5 as never, {}, /not a name/);
      durable.job("shape", { module, inputSchema: { a: z.number() } });
      wrong("a", { module: "./nothing.js" }, /nothing\.js; a relative path is relative to .*servers\.test\.js/);
      wrong("a", { module: "nothing" }, /write \.\/nothing for a file/);
      wrong("a", { module: "https://example.org/x.js" }, /is no file/);
    }
    assert.throws(() => jobs({} as never), /McpServer/);
  });

  test("a configuration that unhang refuses is told with its reason", async () => {
    const script = `${imports("server")}
process.env.UNHANG_CALL_TIMEOUT = "soon";
const server = new McpServer({ name: "x", version: "1" });
jobs(server).job("work", { module: "./work.js" });
await server.connect(new StdioServerTransport());
`;
    place().write("work.js", "export default () => 1;");
    await connected([process.execPath, place().write("server.js", script)], async (session) => {
      assert.match(await session.refused("work"), /UNHANG_CALL_TIMEOUT.*soon/);
    });
  });

  test("a job without a schema gets no arguments, and each job the environment of its call", async () => {
    place().write("work.js", "export const told = (input) => [input, process.env.LATE ?? null];");
    for (const sdk of SDKS) {
      const script = `${imports(sdk)}
const server = new McpServer({ name: "x", version: "1" });
jobs(server).job("told", { module: "./work.js", export: "told" });
server.registerTool("later", { description: "sets a variable" }, () => { process.env.LATE = "late"; return { content: [] }; });
await server.connect(new StdioServerTransport());
`;
      await connected([process.execPath, place().write("server.js", script)], async (session) => {
        assert.deepEqual((await session.run("told", { rm: "-rf" }))["results"], [{}, null]);
        await session.client.callTool({ name: "later", arguments: {} });
        assert.deepEqual((await session.run("told", {}))["results"], [{}, "late"]);
      });
    }
  });

  test("the first SDK takes a shape of zod 3", async () => {
    place().write("work.js", "export const twice = ({ number }) => 2 * number;");
    const script = `${imports("sdk")}
import { z as z3 } from "zod/v3";
const server = new McpServer({ name: "x", version: "1" });
jobs(server).job("twice", { module: "./work.js", export: "twice", inputSchema: { number: z3.number() } });
await server.connect(new StdioServerTransport());
`;
    await connected([process.execPath, place().write("server.js", script)], async (session) => {
      assert.equal((await session.run("twice", { number: 21 }))["results"], 42);
    });
  });

  test("a folder may have any name", async () => {
    const folder = join(place().folder, "f{job_dir} ${HOME} {{args.x}} $${x} %#");
    mkdirSync(folder);
    symlinkSync(join(place().folder, "node_modules"), join(folder, "node_modules"));
    for (const sdk of SDKS) {
      const script = join(folder, "server.mjs");
      writeFileSync(join(folder, "work.mjs"), "export const here = () => import.meta.url;");
      writeFileSync(script, `${imports(sdk)}
const server = new McpServer({ name: "x", version: "1" });
jobs(server).job("here", { module: "./work.mjs", export: "here" });
await server.connect(new StdioServerTransport());
`);
      await connected([process.execPath, script], async (session) => {
        assert.equal((await session.run("here"))["results"], pathToFileURL(join(folder, "work.mjs")).href);
      });
    }
  });

  test("a program that is gone is told", async () => {
    const program = place().write("unhang", "");
    copyFileSync(binary(), program);
    chmodSync(program, 0o755);
    place().write("work.js", "export default () => 1;");
    const script = `${imports("server")}
import { rmSync } from "node:fs";
const server = new McpServer({ name: "x", version: "1" });
jobs(server).job("work", { module: "./work.js" });
rmSync(process.env.UNHANG_BINARY);
await server.connect(new StdioServerTransport());
`;
    const before = process.env["UNHANG_BINARY"];
    process.env["UNHANG_BINARY"] = program;
    try {
      await connected([process.execPath, place().write("server.js", script)], async (session) => {
        assert.match(await session.refused("work"), /unhang does not run/);
      });
    } finally {
      process.env["UNHANG_BINARY"] = before;
    }
  });

  test("a call before the end of stdin is answered", async () => {
    place().write("work.js", "export default () => 1;");
    const script = `${imports("sdk")}
const server = new McpServer({ name: "x", version: "1" });
jobs(server).job("work", { module: "./work.js" });
await server.connect(new StdioServerTransport());
`;
    const greeting = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "x", version: "1" } };
    const messages = [
      { id: 1, method: "initialize", params: greeting },
      { method: "notifications/initialized" },
      { id: 2, method: "tools/call", params: { name: "work", arguments: {} } },
    ];
    const input = messages.map((message) => `${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`).join("");
    const told = execFileSync(process.execPath, [place().write("server.js", script)], { encoding: "utf8", input, timeout: 60_000 });
    const answer = told.split("\n").find((line) => line.includes('"id":2')) ?? "";
    const id: string = JSON.parse(answer).result.structuredContent.job_id;
    assert.equal(await (await get(id)).wait(60_000), 1);
  });

  test("servers that are made anew for each session share one process", async () => {
    const script = `${imports("server")}
import { InMemoryTransport } from "@modelcontextprotocol/server";
import { Client } from "@modelcontextprotocol/client";
import { readdirSync, readFileSync } from "node:fs";

for (let round = 0; round < 3; round++) {
  const server = new McpServer({ name: "x", version: "1" });
  jobs(server).job("work", { module: "./work.js" });
  const [one, other] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: "x", version: "1" });
  await Promise.all([server.connect(one), client.connect(other)]);
  const result = await client.callTool({ name: "list_jobs", arguments: {} });
  if (result.isError) throw new Error(JSON.stringify(result));
}
const parents = readdirSync("/proc").filter((name) => /^\\d+$/.test(name)).map((name) => {
  try { return readFileSync("/proc/" + name + "/stat", "utf8").split(") ")[1].split(" ")[1]; } catch { return ""; }
});
console.log(parents.filter((parent) => parent === String(process.pid)).length);
`;
    place().write("work.js", "export default () => 1;");
    // It ends by itself: a process of the gateway does not keep it.
    const told = execFileSync(process.execPath, [place().write("script.js", script)], { encoding: "utf8", timeout: 60_000 });
    assert.equal(told.trim(), "1");
  });
});

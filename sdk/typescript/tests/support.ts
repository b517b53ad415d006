/** What the tests share: a folder with a data folder for each test, servers, and the official client. */

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { binary, guard } from "@unhang/jobs";

export const SDKS = ["sdk", "server"] as const;
export type Sdk = (typeof SDKS)[number];

const NODE_MODULES = join(dirname(fileURLToPath(import.meta.url)), "../../node_modules");
const LEFT_LIMIT_MS = 20_000;

/** The lines that import the server of an SDK. */
export function imports(sdk: Sdk): string {
  const [server, stdio] = sdk === "sdk" ? ["sdk/server/mcp.js", "sdk/server/stdio.js"] : ["server", "server/stdio"];
  return `import { McpServer } from "@modelcontextprotocol/${server}";
import { StdioServerTransport } from "@modelcontextprotocol/${stdio}";
import { jobs } from "@unhang/jobs";
import * as z from "zod";
`;
}

/** The folder of a test. */
export class Workplace {
  readonly folder = realpathSync(mkdtempSync(join(tmpdir(), "unhang-test-")));

  constructor() {
    symlinkSync(NODE_MODULES, join(this.folder, "node_modules"));
    this.write("package.json", '{ "type": "module" }');
  }

  /** Writes a file, and returns its path. */
  write(name: string, text: string): string {
    const path = join(this.folder, name);
    writeFileSync(path, text);
    return path;
  }

  read(name: string): string {
    return readFileSync(join(this.folder, name), "utf8");
  }
}

/** Gives each test a folder and a data folder of its own, and demands that no process of its jobs is left. */
export function workplace(): () => Workplace {
  let current: Workplace;
  beforeEach(() => {
    current = new Workplace();
    process.env["UNHANG_HOME"] = join(current.folder, "home");
    process.chdir(current.folder);
  });
  afterEach(async () => {
    const marker = `UNHANG_HOME=${join(current.folder, "home")}`;
    const end = Date.now() + LEFT_LIMIT_MS;
    while (processesWith(marker).length > 0) {
      assert.ok(Date.now() < end, `processes are left: ${processesWith(marker).join(", ")}`);
      // Between two looks at /proc, which cannot be waited on.
      await sleep(50);
    }
    process.chdir("/");
    rmSync(current.folder, { recursive: true });
  });
  return () => current;
}

function processesWith(marker: string): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((name) => {
      try {
        const variables = readFileSync(`/proc/${name}/environ`, "utf8").split("\0");
        return variables.includes(marker) ? [readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ")] : [];
      } catch {
        return [];
      }
    });
}

type Answer = Record<string, any>;

/** A session with a server. */
export class Session {
  constructor(readonly client: Client) {}

  /** Calls a tool, and returns its structured answer. Fails if the tool has failed. */
  async call(name: string, input: Answer = {}): Promise<Answer> {
    const result = await this.client.callTool({ name, arguments: input });
    assert.ok(!result.isError, JSON.stringify(result));
    return (result.structuredContent ?? {}) as Answer;
  }

  /** Calls a tool, and returns its text. */
  async text(name: string, input: Answer = {}): Promise<string> {
    const result = await this.client.callTool({ name, arguments: input });
    return (result.content as { text: string }[]).map((block) => block.text).join("\n");
  }

  /** Calls a tool that has to refuse, and returns its text. */
  async refused(name: string, input: Answer = {}): Promise<string> {
    const result = await this.client.callTool({ name, arguments: input });
    assert.ok(result.isError, JSON.stringify(result));
    return (result.content as { text: string }[]).map((block) => block.text).join("\n");
  }

  /** Waits for the end of a job, and returns its results. */
  async ended(job: string, prefix = ""): Promise<Answer> {
    for (let round = 0; round < 8; round++) {
      const status = await this.call(`${prefix}get_job_status`, { job_id: job, wait_seconds: 25 });
      if (!["queued", "starting", "running"].includes(status["status"])) {
        return this.call(`${prefix}get_job_results`, { job_id: job });
      }
    }
    throw new Error(`job ${job} has not ended`);
  }

  /** Starts a job and returns its results. The tools of a server behind the gateway have a prefix. */
  async run(name: string, input: Answer = {}, prefix = ""): Promise<Answer> {
    return this.ended((await this.call(`${prefix}${name}`, input))["job_id"], prefix);
  }
}

/** The command of a server, and the prefix of its tools. */
export interface Way {
  readonly command: readonly string[];
  readonly prefix: string;
}

/** Returns the ways to a server: directly, through the guard and through the gateway. */
export function waysTo(place: Workplace, [program = "", ...args]: readonly string[]): Way[] {
  const guarded = guard(program, args, { name: "plant" });
  const table = `[servers.plant]\ncommand = ${JSON.stringify(program)}\nargs = ${JSON.stringify(args)}\ninherit-env = true\n`;
  return [
    { command: [program, ...args], prefix: "" },
    { command: [guarded.command, ...guarded.args], prefix: "" },
    { command: [binary(), "serve", "--config", place.write("unhang.toml", table)], prefix: "plant__" },
  ];
}

/** Starts a server by its command, opens a session and closes it. */
export async function connected<Result>(command: readonly string[], work: (session: Session) => Promise<Result>): Promise<Result> {
  const [program = "", ...args] = command;
  const env = process.env as Record<string, string>;
  const transport = new StdioClientTransport({ command: program, args, env, stderr: "inherit" });
  const client = new Client({ name: "test", version: "1.0.0" });
  await client.connect(transport);
  try {
    return await work(new Session(client));
  } finally {
    await client.close();
  }
}

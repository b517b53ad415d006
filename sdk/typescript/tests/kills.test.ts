/** Servers that are killed while they start jobs: what was answered runs to its end, and nothing runs twice. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { get, Job, listJobs } from "@unhang/jobs";

import { connected, imports, SDKS, workplace } from "./support.js";

const ROUNDS = Number(process.env["UNHANG_ROUNDS"] ?? 4);
const CALLS = 4;
const LONGEST_MOMENT_MS = 150;
const LIMIT = 120_000;

const NOTE = `
import { appendFileSync } from "node:fs";

export const note = ({ token }) => {
  appendFileSync("ran", token + "\\n");
  return token;
};
`;

for (const sdk of SDKS) {
  describe(`a server of ${sdk} that is killed`, () => {
    const place = workplace();

    test("what was answered runs once", { timeout: LIMIT * 5 }, async () => {
      place().write("note.js", NOTE);
      place().write("ran", "");
      const script = `${imports(sdk)}
const server = new McpServer({ name: "killed", version: "1" });
jobs(server).job("note", { inputSchema: z.object({ token: z.string() }), module: "./note.js", export: "note" });
server.registerTool("pid", {}, async () => ({ content: [{ type: "text", text: String(process.pid) }] }));
await server.connect(new StdioServerTransport());
`;
      const command = [process.execPath, place().write("server.js", script)];
      const answered = new Map<string, string | undefined>();
      for (let round = 0; round < ROUNDS; round++) {
        await connected(command, async (session) => {
          const pid = Number(await session.text("pid"));
          const tokens = Array.from({ length: CALLS }, (_, call) => `${round}-${call}`);
          const calls = tokens.map(async (token) => {
            answered.set(token, undefined);
            answered.set(token, (await session.call("note", { token }))["job_id"] as string);
          });
          // A moment at which the server is killed, and no wait for anybody.
          await sleep((LONGEST_MOMENT_MS * round) / ROUNDS);
          process.kill(pid, "SIGKILL");
          await Promise.allSettled(calls);
        });
      }
      const given = [...answered].filter((entry): entry is [string, string] => entry[1] !== undefined);
      for (const [token, id] of given) {
        assert.equal(await (await get(id)).wait(LIMIT), token);
      }
      // Jobs whose ids were not answered may have started, and end too.
      for (const { job_id } of await listJobs(1000)) {
        await new Job(job_id).wait(LIMIT);
      }
      const ran = place().read("ran").split("\n").slice(0, -1);
      console.log(`${ROUNDS} rounds: ${answered.size} calls, ${given.length} answered, ${ran.length} ran`);
      assert.equal(new Set(ran).size, ran.length, "a job ran twice");
      assert.ok(given.every(([token]) => ran.includes(token)), "a job was lost");
      assert.ok(ran.every((token) => answered.has(token)));
    });
  });
}

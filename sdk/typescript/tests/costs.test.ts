/** What jobs cost a server: it imports no module of them, and needs little more memory. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import { connected, imports, SDKS, type Sdk, workplace } from "./support.js";

const MIB = 1 << 20;
const MOST = 5 * MIB;
const STARTS = 5;

const server = (sdk: Sdk, tools: string): string => `${imports(sdk)}
const server = new McpServer({ name: "five", version: "1" });
server.registerTool("pid", {}, async () => ({ content: [{ type: "text", text: String(process.pid) }] }));
${tools}
await server.connect(new StdioServerTransport());
`;

const FIVE = `
const durable = jobs(server);
for (const name of ["a", "b", "c", "d", "e"]) {
  durable.job(name, { inputSchema: z.object({ x: z.number() }), module: "./models.js", export: name });
}
`;

for (const sdk of SDKS) {
  describe(`the costs of jobs of ${sdk}`, () => {
    const place = workplace();

    test("a server with five jobs imports none of them, and needs at most 5 MiB more", async () => {
      place().write("models.js", 'import { appendFileSync } from "node:fs";\nappendFileSync("imported", "x");\nexport const a = ({ x }) => x;\n');
      place().write("imported", "");
      const memory = async (tools: string): Promise<number> => {
        const sizes: number[] = [];
        const script = place().write("server.js", server(sdk, tools));
        for (let start = 0; start < STARTS; start++) {
          await connected([process.execPath, script], async (session) => {
            const pid = await session.text("pid");
            await session.client.listTools();
            const [, kilobytes = ""] = /^Pss_Anon:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8")) ?? [];
            sizes.push(Number(kilobytes) * 1024);
          });
        }
        return Math.min(...sizes);
      };
      const [without, withJobs] = [await memory(""), await memory(FIVE)];
      console.log(`${sdk}: ${((withJobs - without) / MIB).toFixed(1)} MiB more`);
      assert.ok(withJobs - without <= MOST, `${withJobs} and ${without} bytes`);
      assert.equal(place().read("imported"), "");
      // The marker is written by a job, so its absence tells something.
      await connected([process.execPath, place().write("server.js", server(sdk, FIVE))], async (session) => {
        assert.equal((await session.run("a", { x: 3 }))["results"], 3);
      });
      assert.equal(place().read("imported"), "x");
    });
  });
}

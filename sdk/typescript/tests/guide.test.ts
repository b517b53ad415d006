/** The blocks of the guide, as somebody pastes them. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import { get } from "@unhang/jobs";

import { connected, workplace } from "./support.js";

/** Returns the only block of the guide that has this text. */
function block(containing: string): string {
  const guide = readFileSync(process.env["UNHANG_GUIDE"] ?? assert.fail("UNHANG_GUIDE is the path of the guide"), "utf8");
  const blocks = [...guide.matchAll(/^```(?:js|ts)\n(.*?)^```/gms)].map(([, text]) => text ?? "");
  const found = blocks.filter((text) => text.includes(containing));
  assert.equal(found.length, 1, containing);
  return found[0] ?? "";
}

describe("the guide", () => {
  const place = workplace();

  test("the quick start works when it is pasted", async () => {
    place().write("simulate.js", block("export async function run"));
    for (const server of ["@modelcontextprotocol/server", "@modelcontextprotocol/sdk/server/mcp.js"]) {
      const stdio = server.endsWith("mcp.js") ? "@modelcontextprotocol/sdk/server/stdio.js" : `${server}/stdio`;
      const script = block("new McpServer")
        .replace('"@modelcontextprotocol/server"', JSON.stringify(server))
        .replace('"@modelcontextprotocol/server/stdio"', JSON.stringify(stdio));
      await connected([process.execPath, place().write("server.js", script)], async (session) => {
        assert.deepEqual((await session.run("simulate", { cod: 4.5 }))["results"], { cod: 4.5, days: 30 });
      });
    }
  });

  test("the script works when it is pasted", async () => {
    place().write("simulate.js", block("export async function run"));
    const script = place().write("script.js", block("await submit("));
    const [id = "", result = ""] = execFileSync(process.execPath, [script], { encoding: "utf8", timeout: 90_000 }).split("\n");
    assert.equal(result, "{ cod: 4.5, days: 2 }");
    assert.deepEqual(await (await get(id)).result(), { cod: 4.5, days: 2 });
  });
});

// The server of the bench: one job tool, or five, or none.
import { McpServer } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import * as z from "zod";

const [program, tools] = process.argv.slice(2);
process.env.UNHANG_BINARY = program;
const server = new McpServer({ name: "bench", version: "1" });
server.registerTool("about", { description: "Says what this is." }, async () => ({ content: [{ type: "text", text: "the bench" }] }));
if (tools !== "none") {
  const { jobs } = await import("@unhang/jobs");
  const inputSchema = z.object({ token: z.string(), file: z.string() });
  for (const name of tools === "one" ? ["note"] : ["note", "b", "c", "d", "e"]) {
    jobs(server).job(name, { inputSchema, module: "./work.mjs", export: "note" });
  }
}
await server.connect(new StdioServerTransport());

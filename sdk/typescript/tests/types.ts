/** The types of functions come from the schemas of their tools. This file is compiled and does not run. */

import type { InputOf, JobFunction, Jobs } from "@unhang/jobs";
import { jobs } from "@unhang/jobs";
import { McpServer as FirstMcpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { McpServer } from "@modelcontextprotocol/server";
import * as z from "zod";

type Same<One, Other> = (<Type>() => Type extends One ? 1 : 2) extends <Type>() => Type extends Other ? 1 : 2 ? true : false;
type Flat<Type> = { [Key in keyof Type]: Type[Key] };
const same = <One, Other>(_is: Same<Flat<One>, Flat<Other>>): void => {};

const schema = z.object({ cod: z.number(), days: z.number().default(30), name: z.string().optional() });
const shape = { cod: z.number(), name: z.string().optional() };

same<InputOf<typeof schema>, { cod: number; days: number; name?: string | undefined }>(true);
const dated = z.object({ when: z.string().transform((text) => new Date(text)), names: z.array(z.string()).transform((list) => new Set(list)) });
same<InputOf<typeof dated>, { when: string; names: string[] }>(true);
const branded = z.object({ id: z.string().brand<"Id">(), json: z.json() });
same<InputOf<typeof branded>, z.infer<typeof branded>>(true);
const converted = z.object({
  map: z.string().transform((text) => new Map([[text, 1]])),
  bytes: z.string().transform((text) => new Uint8Array(text.length)),
  nested: z.string().transform(() => ({ toJSON: () => ({ at: new Date() }) })),
});
same<InputOf<typeof converted>, { map: Record<string, number>; bytes: number[]; nested: { at: string } }>(true);
same<InputOf<typeof shape>, { cod: number; name?: string | undefined }>(true);

export const simulate: JobFunction<typeof schema, { cod: number }> = async ({ cod, days }, job) => {
  job.progress(days / 2, "half");
  return { cod };
};

// @ts-expect-error: the schema has no `flow`.
export const wrongInput: JobFunction<typeof schema> = ({ flow }) => flow;

// @ts-expect-error: the result has a number.
export const wrongResult: JobFunction<typeof schema, { cod: number }> = () => ({ cod: "x" });

const first: Jobs = jobs(new FirstMcpServer({ name: "x", version: "1" }));
const second: Jobs = jobs(new McpServer({ name: "x", version: "1" }));
first.job("simulate", { inputSchema: schema, module: "./types.js", export: "simulate" });
second.job("simulate", { inputSchema: schema, module: new URL("./types.js", import.meta.url), export: "simulate", timeout: "1m" });

// @ts-expect-error: a tool has a module.
second.job("simulate", { inputSchema: schema });

/**
 * The named state: JSON documents that jobs, servers and the command line share.
 *
 * A field has a name of letters, digits, `_`, `-` and `.`, and any JSON value.
 */

import { run } from "./command.js";
import { textOf, toJson } from "./json.js";

const NOT_FOUND = 6;

/** Returns the value of a field, or `undefined` if nobody has set it. */
export async function get<Value = unknown>(field: string): Promise<Value | undefined>;
/** Returns the value of a field, or `otherwise` if nobody has set it. */
export async function get<Value = unknown>(field: string, otherwise: Value): Promise<Value>;
export async function get(field: string, otherwise?: unknown): Promise<unknown> {
  const told = await run(["state", "get", "--output", "text", "--", field], { allowed: [0, NOT_FOUND] });
  return told.code === NOT_FOUND ? otherwise : JSON.parse(told.stdout);
}

/** Sets a field to a value. The value may be anything that a job may return. */
export async function set(field: string, value: unknown): Promise<void> {
  await run(["state", "set", "--", field, "-"], { stdin: textOf(toJson(value, "the value")) });
}

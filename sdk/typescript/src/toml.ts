/** Writes the few forms of TOML that the configuration of the gateway needs. */

import type { Json } from "./json.js";

/** Returns the table of a tool. Keys without a value are left out. */
export function tool(name: string, keys: Readonly<Record<string, Json | undefined>>): string {
  const members = Object.entries(keys).filter((entry): entry is [string, Json] => entry[1] !== undefined);
  const lines = members.map(([key, item]) => `${key} = ${value(item)}`);
  return [`[tools.${text(name)}]`, ...lines, ""].join("\n");
}

/** Returns a value in one line. TOML has no null, so members with it are left out. */
function value(item: Json): string {
  if (Array.isArray(item)) {
    return `[${item.map(value).join(", ")}]`;
  }
  if (typeof item === "object" && item !== null) {
    const members = Object.entries(item).filter(([, member]) => member !== null);
    return `{ ${members.map(([key, member]) => `${text(key)} = ${value(member)}`).join(", ")} }`;
  }
  // In a value, `${NAME}` stands for a variable.
  return typeof item === "string" ? text(item.replaceAll("${", () => "$${")) : String(item);
}

/** Returns the words of a command that stand for themselves where `{NAME}` is a placeholder. */
export function literal(words: readonly string[]): string[] {
  return words.map((word) => word.replaceAll(/\{([A-Za-z_][\p{L}\p{N}_.-]*)\}/gu, "{{$1}}"));
}

function text(words: string): string {
  // A basic string of TOML is one of JSON, but for DEL. Half a surrogate pair would not be Unicode.
  return JSON.stringify(words.toWellFormed()).replaceAll("\x7f", "\\u007f");
}

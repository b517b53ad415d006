/** Runs one command of the program `unhang`. */

import { spawn } from "node:child_process";

import { binary } from "./binary.js";
import { UnhangError } from "./errors.js";

const LIMIT_MS = 60_000;

/** What a command has printed, and its exit code. */
export interface CommandOutput {
  readonly code: number;
  readonly stdout: string;
}

export interface CommandOptions {
  readonly stdin?: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** The exit codes that are no error. */
  readonly allowed?: readonly number[];
  /** How long the command may take, in milliseconds; `undefined` is no limit. */
  readonly limit?: number | undefined;
}

/** Runs `unhang` with these words. Throws `UnhangError` with its own sentence if the exit code is another one than allowed. */
export async function run(words: readonly string[], options: CommandOptions = {}): Promise<CommandOutput> {
  const limit = "limit" in options ? options.limit : LIMIT_MS;
  const { code, stdout, stderr } = await ended(words, options, limit);
  if (code === null) {
    throw new UnhangError(`\`${title(words)}\` did not end within ${(limit ?? 0) / 1000} s, or was killed`);
  }
  if (!(options.allowed ?? [0]).includes(code)) {
    throw new UnhangError(sentence(stderr) || `\`${title(words)}\` ended with exit code ${code}`);
  }
  return { code, stdout };
}

interface EndedCommand {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function ended(words: readonly string[], options: CommandOptions, limit: number | undefined): Promise<EndedCommand> {
  return new Promise((resolve, reject) => {
    const child = spawn(binary(), words, {
      env: { ...process.env, ...options.environment },
      ...(limit === undefined ? {} : { timeout: limit, killSignal: "SIGKILL" }),
    });
    const printed = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
    child.stdout.on("data", (bytes: Buffer) => printed.stdout.push(bytes));
    child.stderr.on("data", (bytes: Buffer) => printed.stderr.push(bytes));
    child.on("error", reject);
    child.on("close", (code) => {
      const text = (parts: Buffer[]) => Buffer.concat(parts).toString("utf8");
      resolve({ code, stdout: text(printed.stdout), stderr: text(printed.stderr) });
    });
    // A command that has ended without reading is no failure.
    child.stdin.on("error", () => {});
    child.stdin.end(options.stdin ?? "");
  });
}

function title(words: readonly string[]): string {
  return ["unhang", ...words.slice(0, 2)].join(" ");
}

/** Returns the message of an error, which is JSON with `--output json`. */
export function sentence(stderr: string): string {
  const lines = stderr.split("\n").filter((line) => line.trim() !== "");
  try {
    const told: { error: { message: unknown } } = JSON.parse(lines.at(-1) ?? "");
    return String(told.error.message);
  } catch {
    return lines.map((line) => line.trim().replace(/^unhang: /, "")).join(" ");
  }
}

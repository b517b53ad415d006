/**
 * The process of a job.
 *
 * The arguments come from `input.json` in the job's folder. The result goes to `results.json`, an error to `error.json`. Both are written
 * whole, by a rename. A result of more than 16 MiB goes to a file of its own, and `results.json` has the path.
 *
 * Invariant: this process ends by `finish`, which writes the result or the reason why there is none. It imports no framework.
 */

import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { inspect } from "node:util";

import { Cancelled, type JobContext } from "./context.js";
import { messageOf } from "./errors.js";
import { type Json, textOf, toJson } from "./json.js";
import { withoutSecrets } from "./secrets.js";
import { ARGUMENTS, ERROR, FOLDER, ID, LARGE_RESULT, LARGE_RESULT_KEY, LARGEST_RESULT, RESULTS, WORKER } from "./names.js";

const FAILED = 1;
const CANCELLED = 143;
const LONGEST_KIND = 100;
/** Both must fit into one answer of a tool. */
const LONGEST_MESSAGE = 2_000;
const LONGEST_TRACE = 12_000;
const LONGEST_NEWS = 500;

interface Failure {
  readonly kind: string;
  readonly message: string;
  readonly traceback?: string;
}

const controller = new AbortController();
const writeStdout = process.stdout.write.bind(process.stdout);
let isAtBeginOfLine = true;
let isFinished = false;
/** Whose code runs. */
let who = "the module";

/** Runs the function that the command line names. */
async function main(folder: string): Promise<void> {
  const [, , module = "", name = ""] = process.argv;
  const input: unknown = JSON.parse(readFileSync(join(folder, ARGUMENTS), "utf8"));
  const exported = (await import(module).catch((error: unknown) => {
    // Node.js tells the place of a syntax error to a terminal only.
    throw error instanceof SyntaxError ? new SyntaxError(`${module}: ${error.message}`, { cause: error }) : error;
  })) as Record<string, unknown>;
  who = "the function";
  const found = exported[name];
  if (typeof found !== "function") {
    const what = found === undefined ? "does not export" : "exports as something else than a function";
    finish(folder, FAILED, { kind: "TargetError", message: `${module} ${what}: ${name}` });
  }
  const result: unknown = await (found as (input: unknown, job: JobContext) => unknown)(input, contextOf(folder));
  finishWithResult(folder, toJson(result));
}

function contextOf(folder: string): JobContext {
  const log = (message: unknown) => void process.stderr.write(`${typeof message === "string" ? message : inspect(message)}\n`);
  return { id: process.env[ID] ?? "", dir: folder, signal: controller.signal, progress, log };
}

/** A wrong fraction is no reason to lose the work: sums of fractions are a little more than 1, and 0 / 0 is no number. */
function progress(fraction: number, message?: string): void {
  if (typeof fraction !== "number" || Number.isNaN(fraction)) {
    process.stderr.write(`progress is a number from 0 to 1, not ${inspect(fraction)}\n`);
    return;
  }
  const inRange = Math.min(1, Math.max(0, fraction));
  const said = { progress: inRange, ...(message === undefined ? {} : { message: String(message).slice(0, LONGEST_NEWS) }) };
  const begin = isAtBeginOfLine ? "" : "\n";
  isAtBeginOfLine = true;
  writeStdout(`${begin}${JSON.stringify(said)}\n`);
}

/** The progress needs a line of its own, so this remembers whether the function has begun one. */
function trackLines(): void {
  process.stdout.write = ((chunk: string | Uint8Array, ...rest: unknown[]) => {
    if (chunk.length > 0) {
      isAtBeginOfLine = typeof chunk === "string" ? chunk.endsWith("\n") : chunk.at(-1) === 0x0a;
    }
    return (writeStdout as (...words: unknown[]) => boolean)(chunk, ...rest);
  }) as typeof process.stdout.write;
}

function finishWithResult(folder: string, result: Json): never {
  let text = textOf(result);
  const bytes = Buffer.byteLength(text);
  if (bytes > LARGEST_RESULT) {
    const large = join(folder, LARGE_RESULT);
    replace(large, text);
    text = JSON.stringify({ [LARGE_RESULT_KEY]: large, bytes });
  }
  replace(join(folder, RESULTS), text);
  isFinished = true;
  process.exit(0);
}

function finishWithError(folder: string, error: unknown): never {
  if (controller.signal.aborted) {
    process.stderr.write(`${messageOf(controller.signal.reason)}\n`);
    isFinished = true;
    process.exit(CANCELLED);
  }
  const trace = withoutSecrets(traceOf(error));
  // A person reads the log, so the whole trace goes there too.
  process.stderr.write(`${trace}\n`);
  const kind = withoutSecrets(error instanceof Error ? String(error.name) : typeof error);
  const message = withoutSecrets(error instanceof Error ? String(error.message) : trace);
  finish(folder, FAILED, {
    kind: shortened(kind, LONGEST_KIND),
    message: shortened(message, LONGEST_MESSAGE),
    traceback: shortened(trace, LONGEST_TRACE),
  });
}

/** Returns the error with its stack. The code of the function may have a part in that, and fail. */
function traceOf(error: unknown): string {
  try {
    return inspect(error);
  } catch (failure) {
    return `${messageOf(error)}\n(its stack cannot be had: ${messageOf(failure)})`;
  }
}

function finish(folder: string, code: number, failure: Failure): never {
  isFinished = true;
  replace(join(folder, ERROR), JSON.stringify(failure));
  process.exit(code);
}

function shortened(text: string, longest: number): string {
  return text.length <= longest ? text : `${text.slice(0, longest)}…`;
}

function replace(path: string, text: string): void {
  const beside = `${path}.${process.pid}`;
  const file = openSync(beside, "wx", 0o600);
  try {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; ) {
      at += writeSync(file, bytes, at);
    }
    durably(file);
  } finally {
    closeSync(file);
  }
  renameSync(beside, path);
}

function durably(file: number): void {
  try {
    fsyncSync(file);
  } catch (error) {
    // With `--permission`, Node.js lets nobody call it. Without it, only a power failure can take the result.
    if ((error as NodeJS.ErrnoException).code !== "ERR_ACCESS_DENIED") {
      throw error;
    }
  }
}

function start(): void {
  const folder = process.env[FOLDER];
  if (process.env[WORKER] === undefined || folder === undefined) {
    process.stderr.write("this program runs a function as a job of unhang, and unhang starts it\n");
    process.exit(2);
  }
  // A function that starts this program again, as `cluster.fork` does, must not run itself once more.
  delete process.env[WORKER];
  trackLines();
  process.on("SIGTERM", () => controller.abort(new Cancelled()));
  process.on("uncaughtException", (error) => finishWithError(folder, error));
  process.on("beforeExit", () => {
    finish(folder, FAILED, {
      kind: "UnsettledPromise",
      message: `${who} waits for a promise that nothing can settle any more: no timer, connection or process was left`,
    });
  });
  process.on("exit", (code) => {
    if (!isFinished) {
      replace(join(folder, ERROR), JSON.stringify({ kind: "Exit", message: `${who} called process.exit(${code})` }));
      process.exitCode = FAILED;
    }
  });
  main(folder).catch((error: unknown) => finishWithError(folder, error));
}

start();

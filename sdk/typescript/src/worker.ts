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
import { ARGUMENTS, ERROR, FOLDER, ID, LARGE_RESULT, LARGE_RESULT_KEY, LARGEST_RESULT, RESULTS, WORKER } from "./names.js";

const FAILED = 1;
const CANCELLED = 143;
const LONGEST_TEXT = 16_000;
const LONGEST_MESSAGE = 500;
const SHORTEST_SECRET = 8;
const SECRET_NAMES = /KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH/i;

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

function progress(fraction: number, message?: string): void {
  if (!(fraction >= 0 && fraction <= 1)) {
    throw new RangeError(`progress is a number from 0 to 1, not ${fraction}`);
  }
  const said = { progress: fraction, ...(message === undefined ? {} : { message: String(message).slice(0, LONGEST_MESSAGE) }) };
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
  const trace = withoutSecrets(inspect(error));
  // A person reads the log, so the whole trace goes there too.
  process.stderr.write(`${trace}\n`);
  const kind = error instanceof Error ? error.name : typeof error;
  const message = withoutSecrets(error instanceof Error ? error.message : trace);
  finish(folder, FAILED, { kind, message: shortened(message), traceback: shortened(trace) });
}

function finish(folder: string, code: number, failure: Failure): never {
  isFinished = true;
  replace(join(folder, ERROR), JSON.stringify(failure));
  process.exit(code);
}

function shortened(text: string): string {
  return text.length <= LONGEST_TEXT ? text : `${text.slice(0, LONGEST_TEXT)}…`;
}

/** Replaces the values of variables whose names sound like secrets. */
function withoutSecrets(text: string): string {
  let rest = text.toWellFormed();
  for (const [name, value = ""] of Object.entries(process.env).filter(([name]) => SECRET_NAMES.test(name))) {
    // As JSON and `inspect` write it, and each of its lines.
    const forms = [value, JSON.stringify(value).slice(1, -1), inspect(value).slice(1, -1), ...value.split("\n")];
    for (const form of forms.filter(({ length }) => length >= SHORTEST_SECRET)) {
      rest = rest.replaceAll(form, `[${name}]`);
    }
  }
  return rest;
}

function replace(path: string, text: string): void {
  const beside = `${path}.${process.pid}`;
  const file = openSync(beside, "wx", 0o600);
  try {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; ) {
      at += writeSync(file, bytes, at);
    }
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(beside, path);
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

/**
 * The gateway of a server's jobs: `unhang serve` as a child, with the functions as its tools.
 *
 * The configuration is a file without a name, so nothing has to be removed afterwards, however this process ends. The child ends when its
 * stdin closes, and the jobs do not end with it.
 *
 * Invariants: one child for each configuration and environment, started at the first request, since servers over HTTP are made anew for
 * each session. A request is never sent twice: if the child ends, what became of a submission is unknown, and the error says so. A child
 * keeps this process alive only while a request waits, and for a moment after the client has closed stdin, so that it ends before this
 * process. It ends after a minute without a request.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { closeSync, openSync, unlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomUUID } from "node:crypto";
import type { Readable, Writable } from "node:stream";
import { StringDecoder } from "node:string_decoder";

import { binary } from "./binary.js";
import { sentence } from "./command.js";
import { messageOf, UnhangError } from "./errors.js";
import { type Json, textOf } from "./json.js";
import type { ToolResult } from "./types.js";
import { version } from "./version.js";

const PROTOCOL = "2025-11-25";
const START_LIMIT_MS = 30_000;
const END_LIMIT_MS = 5_000;
const IDLE_LIMIT_MS = 60_000;

/** The gateway answers within 30 s: `get_job_status` waits for 25 s at most. A later answer does not come. */
export const ANSWER_LIMIT_MS = 120_000;

const LOST =
  "the process `unhang serve` of this server ended before it answered; a job that it was about to start may have started: " +
  "list_jobs shows it";

const CANCELLED = "the call was cancelled";

/** The gateway does not answer, or has refused the request. */
export class GatewayError extends UnhangError {
  override name = "GatewayError";
}

/** The children that run, by their configuration and environment. */
const children = new Map<string, Child>();

/** Ends the children when the client closes stdin and has its answers. */
function watchClient(): void {
  if (process.stdin.listenerCount("end", closeAll) === 0) {
    process.stdin.once("end", closeAll);
  }
}

function closeAll(): void {
  for (const child of children.values()) {
    child.close();
  }
}

/** The tools of one server, and the child that answers them. */
export class Gateway {
  readonly #tools: string[] = [];

  /** Adds the table of a tool. */
  add(tool: string): void {
    this.#tools.push(tool);
  }

  /** Calls a tool, and returns the result as MCP has it. */
  async call(name: string, input: Record<string, unknown>, signal?: AbortSignal, limit = ANSWER_LIMIT_MS): Promise<ToolResult> {
    const configuration = this.#tools.join("\n");
    // A job gets the environment as it is at the call, and the child's is that of its start.
    const key = JSON.stringify([configuration, process.env]);
    let child = children.get(key);
    if (child === undefined || !child.isUsable) {
      watchClient();
      child = new Child(configuration, key);
      children.set(key, child);
    }
    return (await child.call({ name, arguments: input }, limit, signal)) as ToolResult;
  }
}

interface Waiting {
  readonly settle: (outcome: { result: unknown } | { error: Error }) => void;
}

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly result?: unknown;
  readonly error?: { readonly message?: unknown };
}

/** One process of the gateway. */
class Child {
  readonly #configuration: string;
  readonly #key: string;
  readonly #process: ChildProcess;
  readonly #stdin: Writable;
  readonly #waiting = new Map<number, Waiting>();
  #number = 0;
  #calls = 0;
  #hasEnded = false;
  #isClosing = false;
  #idle: NodeJS.Timeout | undefined;

  /** Settles when the child has answered `initialize`. */
  readonly #greeted: Promise<void>;

  constructor(configuration: string, key: string) {
    this.#configuration = configuration;
    this.#key = key;
    const child = withConfiguration(configuration, (file, words) =>
      spawn(binary(), words, { stdio: ["pipe", "pipe", "inherit", file] }),
    );
    this.#process = child;
    this.#stdin = child.stdin as Writable;
    child.on("error", () => this.#end());
    child.on("close", () => this.#end());
    // The end of the child fails everything that waits.
    this.#stdin.on("error", () => {});
    readLines(child.stdout as Readable, (line) => this.#take(line));
    this.#greeted = this.#greet();
  }

  get isUsable(): boolean {
    return !this.#hasEnded && this.#stdin.writable;
  }

  /** Asks the process to end as soon as nobody waits for it, and lets this one wait for it. */
  close(): void {
    this.#isClosing = true;
    this.#hold();
  }

  /** Calls a tool, once the process has answered `initialize`. */
  async call(parameters: unknown, limit: number, signal?: AbortSignal): Promise<unknown> {
    this.#calls += 1;
    this.#hold();
    try {
      await this.#greeted;
      return await this.#request("tools/call", parameters, limit, signal);
    } finally {
      this.#calls -= 1;
      this.#hold();
    }
  }

  #request(method: string, parameters: unknown, limit: number, signal?: AbortSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#hasEnded || signal?.aborted) {
        reject(new GatewayError(this.#hasEnded ? LOST : CANCELLED));
        return;
      }
      const id = ++this.#number;
      const late = `\`unhang serve\` of this server did not answer \`${method}\` within ${limit / 1000} s; \`unhang job list\` shows whether a job has started`;
      const timer = setTimeout(() => settle({ error: new GatewayError(late) }), limit);
      timer.unref();
      const settle: Waiting["settle"] = (outcome) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abandon);
        this.#waiting.delete(id);
        "error" in outcome ? reject(outcome.error) : resolve(outcome.result);
      };
      const abandon = () => {
        this.#send({ method: "notifications/cancelled", params: { requestId: id } });
        settle({ error: new GatewayError(CANCELLED) });
      };
      this.#waiting.set(id, { settle });
      this.#send({ id, method, params: parameters });
      signal?.addEventListener("abort", abandon);
    });
  }

  async #greet(): Promise<void> {
    const about = { name: "unhang-typescript", version };
    const greeting = { protocolVersion: PROTOCOL, capabilities: {}, clientInfo: about };
    try {
      await this.#request("initialize", greeting, START_LIMIT_MS);
    } catch (error) {
      this.#process.kill("SIGKILL");
      throw new GatewayError(whyNotStarted(this.#configuration) ?? messageOf(error), { cause: error });
    }
    this.#send({ method: "notifications/initialized" });
  }

  #send(message: object): void {
    if (this.#stdin.writable) {
      this.#stdin.write(`${textOf({ jsonrpc: "2.0", ...message } as { [key: string]: Json })}\n`);
    }
  }

  #take(line: string): void {
    let message: Message;
    try {
      message = JSON.parse(line) as Message;
    } catch {
      return;
    }
    if (message.method !== undefined) {
      if (message.id !== undefined) {
        this.#send({ id: message.id, ...answerOfClient(message.method) });
      }
      return;
    }
    const { error } = message;
    const outcome =
      error === undefined ? { result: message.result } : { error: new GatewayError(String(error.message ?? JSON.stringify(error))) };
    this.#waiting.get(message.id ?? 0)?.settle(outcome);
  }

  /** Ends the process after a time without a request. Servers that are made with other tools each time would leave one each. */
  #retire(): void {
    this.#leave();
    this.close();
  }

  #leave(): void {
    if (children.get(this.#key) === this) {
      children.delete(this.#key);
    }
  }

  #end(): void {
    this.#hasEnded = true;
    this.#leave();
    for (const { settle } of [...this.#waiting.values()]) {
      settle({ error: new GatewayError(LOST) });
    }
  }

  #hold(): void {
    const isWaitedFor = this.#calls > 0;
    clearTimeout(this.#idle);
    if (!isWaitedFor && this.#isClosing) {
      this.#stdin.end();
      setTimeout(() => this.#process.unref(), END_LIMIT_MS).unref();
    } else if (!isWaitedFor) {
      this.#idle = setTimeout(() => this.#retire(), IDLE_LIMIT_MS).unref();
    }
    const pipes = [this.#process.stdin, this.#process.stdout] as unknown as { ref(): void; unref(): void }[];
    for (const pipe of pipes) {
      isWaitedFor ? pipe.ref() : pipe.unref();
    }
    isWaitedFor || this.#isClosing ? this.#process.ref() : this.#process.unref();
  }
}

/** Calls `work` with the descriptor of a file without a name that has the configuration, and the words of the command. */
function withConfiguration<Result>(configuration: string, work: (file: number, words: string[]) => Result): Result {
  const path = join(tmpdir(), `unhang-${randomUUID()}`);
  const file = openSync(path, "wx+", 0o600);
  try {
    unlinkSync(path);
    const bytes = Buffer.from(configuration);
    for (let at = 0; at < bytes.length; ) {
      at += writeSync(file, bytes, at, bytes.length - at, at);
    }
    return work(file, ["serve", "--own", "--config", "/dev/fd/3"]);
  } finally {
    closeSync(file);
  }
}

/** Starts the gateway once more without a client, for the sentence with which it refuses a configuration. */
function whyNotStarted(configuration: string): string | undefined {
  const told = withConfiguration(configuration, (file, words) =>
    spawnSync(binary(), words, { stdio: ["ignore", "ignore", "pipe", file], encoding: "utf8", timeout: START_LIMIT_MS }),
  );
  if (told.error !== undefined) {
    return `${binary()} does not run: ${told.error.message}`;
  }
  // The place in a file that nobody has written tells nothing.
  const reason = sentence(told.stderr).replace(/^\/dev\/fd\/\d+:\d+:\d+: /, "");
  return told.status === 0 || reason === "" ? undefined : reason;
}

function readLines(stream: Readable, take: (line: string) => void): void {
  const decoder = new StringDecoder("utf8");
  let parts: string[] = [];
  stream.on("data", (bytes: Buffer) => {
    const [first = "", ...lines] = decoder.write(bytes).split("\n");
    parts.push(first);
    for (const line of lines) {
      take(parts.join(""));
      parts = [line];
    }
  });
}

/** Returns what this client answers to a request of the gateway: it offers nothing, and lives. */
function answerOfClient(method: string): object {
  return method === "ping" ? { result: {} } : { error: { code: -32601, message: `this client has no method ${method}` } };
}

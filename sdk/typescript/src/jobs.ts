/** `jobs(server)`: tools of a server that answer at once with the id of a job. */

import { readFileSync } from "node:fs";

import { binary, VARIABLE } from "./binary.js";
import { messageOf, UnhangError } from "./errors.js";
import { type Framework, frameworkOf, type ObjectSchema, type ToolDescription, type ToolServer } from "./frameworks.js";
import { Gateway } from "./gateway.js";
import { toJson } from "./json.js";
import { RESULTS } from "./names.js";
import { commandOf, type Target, workerEnvironment } from "./target.js";
import * as toml from "./toml.js";
import type { InputSchema, ToolResult } from "./types.js";

interface JobTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: ObjectSchema;
}

const JOB_TOOLS = JSON.parse(readFileSync(new URL("./job_tools.json", import.meta.url), "utf8")) as JobTool[];
const TOOL_NAME = /^[A-Za-z0-9_.-]{1,128}$/;
const STATE_FIELD = /^[A-Za-z_][A-Za-z0-9_.-]{0,63}$/;
/** The program counts nanoseconds in 64 bits, so the numbers are short. */
const TIMEOUT = /^\s*(?:\d{1,9}(?:\.\d{1,6})?\s*(?:ms|s|m|h|d|w)\s*)+$/;
const LONGEST_TIMEOUT_YEARS = 100;
const MILLISECONDS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

const known = new WeakMap<ToolServer, Jobs>();

/** What a function is as a tool. */
export interface JobOptions extends Target, ToolDescription {
  /** The schema of the arguments. Default: no arguments. */
  readonly inputSchema?: InputSchema;
  /** The time after which unhang ends the job, with a unit: `"30m"`. Default: no limit. */
  readonly timeout?: string;
  /** The field of the state that receives the result. The server then also offers the three state tools. */
  readonly state?: string;
}

/**
 * Adds the job tools to a server, once, and returns what turns functions into jobs.
 *
 * @param server An `McpServer` of `@modelcontextprotocol/sdk` or `@modelcontextprotocol/server`, before it is connected.
 * @throws {BinaryNotFoundError} The program `unhang` is not installed.
 */
export function jobs(server: ToolServer): Jobs {
  let found = known.get(server);
  if (found === undefined) {
    found = new Jobs(frameworkOf(server));
    known.set(server, found);
  }
  return found;
}

function isTimeout(text: unknown): boolean {
  if (typeof text !== "string" || !TIMEOUT.test(text)) {
    return false;
  }
  const parts = [...text.matchAll(/([\d.]+)\s*([a-z]+)/g)];
  const sum = parts.reduce((total, [, number, unit]) => total + Number(number) * (MILLISECONDS[unit ?? ""] ?? 0), 0);
  return sum > 0 && sum <= LONGEST_TIMEOUT_YEARS * 365 * (MILLISECONDS["d"] ?? 0);
}

/** The jobs of one server. */
export class Jobs {
  readonly #framework: Framework;
  readonly #gateway = new Gateway();
  readonly #names = new Set<string>();
  #hasState = false;

  /** @internal */
  constructor(framework: Framework) {
    this.#framework = framework;
    binary();
    this.#addTools(false);
  }

  /**
   * Adds a tool that starts an exported function as a job. This process never imports the module.
   *
   * @throws {UnhangError} There is no such module, or a name or a time has a wrong form.
   */
  job(name: string, options: JobOptions): void {
    this.#check(name, options);
    const command = commandOf(options, this.job);
    const { inputSchema, title, description, annotations } = options;
    if (options.state !== undefined && !this.#hasState) {
      this.#hasState = true;
      this.#addTools(true);
    }
    const table = toml.tool(name, {
      command: toml.literal(command),
      mode: "job",
      cwd: process.cwd(),
      "inherit-env": true,
      env: { ...workerEnvironment(), [VARIABLE]: binary() },
      // The framework checks the arguments, and may give them another form.
      "input-schema": { additionalProperties: true },
      results: RESULTS,
      timeout: options.timeout,
      state: options.state === undefined ? undefined : { field: options.state },
    });
    const about = {
      ...(title === undefined ? {} : { title }),
      ...(description === undefined ? {} : { description }),
      ...(annotations === undefined ? {} : { annotations }),
    };
    this.#framework.addTyped(name, about, inputSchema, (input, signal) => this.#call(name, input, signal));
    this.#gateway.add(table);
    this.#names.add(name);
  }

  #check(name: string, { inputSchema, timeout, state }: JobOptions): void {
    if (typeof name !== "string" || !TOOL_NAME.test(name)) {
      throw new UnhangError(`${JSON.stringify(name)} is not a name for a tool: use letters, digits, _, - and ., at most 128`);
    }
    if (JOB_TOOLS.some((tool) => tool.name === name)) {
      throw new UnhangError(`\`${name}\` is the name of a tool that unhang itself offers; give your tool another name`);
    }
    if (this.#names.has(name)) {
      throw new UnhangError(`this server has a job tool \`${name}\` already; give one of the two another name`);
    }
    if (inputSchema !== undefined && (typeof inputSchema !== "object" && typeof inputSchema !== "function" || inputSchema === null)) {
      throw new UnhangError(`the inputSchema of \`${name}\` is ${String(inputSchema)}; give a schema of an object, or none for no arguments`);
    }
    if (timeout !== undefined && !isTimeout(timeout)) {
      throw new UnhangError(
        `the timeout of \`${name}\` is ${JSON.stringify(timeout)}; write a number with a unit, such as "90s" or "30m", of at most ` +
          `${LONGEST_TIMEOUT_YEARS} years`,
      );
    }
    if (state !== undefined && !STATE_FIELD.test(state)) {
      throw new UnhangError(
        `${JSON.stringify(state)} is not a name of a state field: write a letter or _, then letters, digits, _, - and ., at most 64`,
      );
    }
  }

  /** Adds the tools about jobs, or those about the state. */
  #addTools(ofState: boolean): void {
    for (const { name, description, inputSchema } of JOB_TOOLS) {
      if (name.endsWith("_state") === ofState) {
        this.#framework.addDescribed(name, { description }, inputSchema, (input, signal) => this.#call(name, input, signal));
      }
    }
  }

  async #call(name: string, input: Record<string, unknown>, signal: AbortSignal | undefined): Promise<ToolResult> {
    try {
      const plain = toJson(input, "the arguments") as Record<string, unknown>;
      return await this.#gateway.call(name, plain, signal);
    } catch (error) {
      return { content: [{ type: "text", text: messageOf(error) }], isError: true };
    }
  }
}

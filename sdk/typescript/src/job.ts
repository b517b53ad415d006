/** Jobs of scripts: `submit` starts one, and `get` finds one again, also from another process. */

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { run } from "./command.js";
import { JobFailedError, JobRefusedError, messageOf, UnhangError, WaitTimeoutError } from "./errors.js";
import { textOf, toJson } from "./json.js";
import { ARGUMENTS, LARGE_RESULT, LARGE_RESULT_KEY, RESULTS } from "./names.js";
import { commandOf, type Target, workerEnvironment } from "./target.js";

const FAILED = 1;
const DEADLINE = 4;
const SLACK_MS = 30_000;
/** Node.js has no longer timers. */
const LONGEST_WAIT_MS = 2 ** 31 - 1 - SLACK_MS;
const HOW: Readonly<Record<string, string>> = { failed: "has failed", cancelled: "was cancelled", lost: "is lost" };

/** What unhang knows of a job. */
export interface JobRecord {
  readonly [key: string]: unknown;
  readonly job_id: string;
  readonly status: string;
  readonly progress?: number;
  /** The folder of the job's files; absent if a database has the job that machines share. */
  readonly work_folder?: string;
}

/** What is run, and how. */
export interface SubmitOptions extends Target {
  /** The arguments. Default: `{}`. */
  readonly input?: unknown;
  /** The time after which unhang ends the job, with a unit: `"30m"`. Default: no limit. */
  readonly timeout?: string;
  /** The name in lists. Default: that of the export. */
  readonly name?: string;
  /** The field of the state that receives the result. */
  readonly state?: string;
}

/** A job, by its id. It holds nothing, so any number of them may stand for one job. */
export class Job {
  /** @throws {UnhangError} The text is no id. */
  constructor(readonly id: string) {
    // An option of the command line is no id.
    if (!/^[a-z0-9]{1,64}$/.test(id)) {
      throw new UnhangError(`${JSON.stringify(id)} is not the id of a job`);
    }
  }

  /** Returns the record of the job: `status`, `progress`, `created_at` and so on. */
  async status(): Promise<JobRecord> {
    const told: unknown = JSON.parse((await run(["job", "show", this.id, "--output", "json"])).stdout);
    return (Array.isArray(told) ? told[0] : told) as JobRecord;
  }

  /**
   * Waits until the job has ended, and returns its result.
   *
   * @param timeout The longest wait, in milliseconds. Default: no limit.
   * @throws {JobFailedError} It has ended in another way.
   * @throws {WaitTimeoutError} It has not ended. It goes on.
   */
  async wait<Result = unknown>(timeout?: number): Promise<Result> {
    if (timeout !== undefined && !(timeout >= 0)) {
      throw new RangeError(`the time to wait is a number of milliseconds, not ${timeout}`);
    }
    const milliseconds = timeout === undefined || timeout > LONGEST_WAIT_MS ? undefined : Math.max(1, Math.round(timeout));
    const words = ["job", "wait", this.id, "--output", "json"];
    words.push(...(milliseconds === undefined ? [] : ["--timeout", `${milliseconds}ms`]));
    const limit = milliseconds === undefined ? undefined : milliseconds + SLACK_MS;
    const told = await run(words, { allowed: [0, FAILED, DEADLINE], limit });
    if (told.code === DEADLINE) {
      throw new WaitTimeoutError(`job ${this.id} has not ended within ${(timeout ?? 0) / 1000} s; it goes on`);
    }
    return this.result<Result>();
  }

  /** Returns the result of a job that has completed. Throws `JobFailedError` if it has ended in another way. */
  async result<Result = unknown>(): Promise<Result> {
    const record = await this.status();
    if (record.status === "completed") {
      return (await whole(JSON.parse((await run(["job", "result", this.id])).stdout), record)) as Result;
    }
    if (!(record.status in HOW)) {
      throw new UnhangError(`job ${this.id} has no result yet: it is ${record.status}; \`wait\` waits for the end`);
    }
    const detail = record["detail"] || record["reason"];
    const message = `job ${this.id} ${HOW[record.status]}${detail ? `: ${String(detail)}` : ""}`;
    throw new JobFailedError(message, record.status, record);
  }

  /** Returns what unhang keeps of the output. */
  async logs(stream: "stdout" | "stderr" = "stdout"): Promise<string> {
    if (stream !== "stdout" && stream !== "stderr") {
      throw new TypeError(`a job has stdout and stderr, and no stream ${JSON.stringify(stream)}`);
    }
    return (await run(["job", "logs", this.id, ...(stream === "stderr" ? ["--stderr"] : [])])).stdout;
  }

  /** Ends the job and all its processes. */
  async cancel(): Promise<void> {
    await run(["job", "cancel", this.id]);
  }
}

/**
 * Starts a function as a job, and returns its handle.
 *
 * @throws {JobRefusedError} unhang does not take it.
 */
export function submit(options: SubmitOptions): Promise<Job> {
  // The stack tells whose call this is, so nothing may be awaited before.
  return submitCommand(commandOf(options, submit), options);
}

async function submitCommand(command: string[], options: SubmitOptions): Promise<Job> {
  const text = textOf(toJson(options.input ?? {}, "the input"));
  const folder = await mkdtemp(join(tmpdir(), "unhang-"));
  try {
    const path = join(folder, ARGUMENTS);
    await writeFile(path, text, { flag: "wx", mode: 0o600 });
    // A value that begins with `-` would be an option if it were a word of its own.
    const words = ["job", "run", "--output", "json", `--name=${options.name ?? options.export ?? "default"}`];
    words.push("--input", path, "--result", RESULTS);
    words.push(...(options.timeout === undefined ? [] : [`--timeout=${options.timeout}`]));
    words.push(...(options.state === undefined ? [] : [`--state=${options.state}`]));
    const told = await run([...words, "--", ...command], { environment: workerEnvironment() });
    return new Job(String((JSON.parse(told.stdout) as { job_id: unknown }).job_id));
  } catch (error) {
    throw error instanceof UnhangError ? new JobRefusedError(messageOf(error), { cause: error }) : error;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Finds a job by its id. Throws `UnhangError` if there is none. */
export async function get(id: string): Promise<Job> {
  // `last` and a prefix stand for another job later.
  return new Job((await new Job(id).status()).job_id);
}

/** Returns the records of the newest jobs on this data folder, the newest first. */
export async function listJobs(limit = 100): Promise<JobRecord[]> {
  const told: unknown = JSON.parse((await run(["job", "list", "--limit", String(limit), "--output", "json"])).stdout);
  return Array.isArray(told) ? (told as JobRecord[]) : (told as { jobs: JobRecord[] }).jobs;
}

/** Returns the result, from its own file if it is a large one. A function may return the path of any other file. */
async function whole(result: unknown, { work_folder }: JobRecord): Promise<unknown> {
  if (work_folder === undefined) {
    return result;
  }
  const path = join(work_folder, LARGE_RESULT);
  const isLarge = typeof result === "object" && result !== null && LARGE_RESULT_KEY in result && result[LARGE_RESULT_KEY] === path;
  return isLarge ? JSON.parse(await readFile(path, "utf8")) : result;
}

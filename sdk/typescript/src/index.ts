/**
 * Slow functions of MCP servers as durable jobs.
 *
 * A server registers a function as a tool, and a call of the tool answers at once with the id of a job. The function runs in a process of
 * its own, under the supervisor of the program `unhang`, which outlives the server.
 */

export { binary } from "./binary.js";
export { Cancelled, type JobContext } from "./context.js";
export {
  BinaryNotFoundError,
  JobFailedError,
  JobRefusedError,
  UnhangError,
  VersionMismatchError,
  WaitTimeoutError,
} from "./errors.js";
export type { ToolDescription, ToolServer } from "./frameworks.js";
export { type GuardedServer, type GuardOptions, guard } from "./guard.js";
export { get, Job, type JobRecord, listJobs, type SubmitOptions, submit } from "./job.js";
export { type JobOptions, Jobs, jobs } from "./jobs.js";
export { NotJsonError } from "./json.js";
export * as state from "./state.js";
export type { Target } from "./target.js";
export type { InputOf, InputSchema, JobFunction, StandardSchema } from "./types.js";
export { version } from "./version.js";

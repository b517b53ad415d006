/** What a function sees of its job while it runs. */

/** Tells a function about its job, and the job about the function. */
export interface JobContext {
  /** The id of the job. */
  readonly id: string;
  /** The path of the job's working folder. Files in it stay until the job is removed. */
  readonly dir: string;
  /** Is aborted when the job is cancelled, or when its time is over. A moment later unhang ends the process in any case. */
  readonly signal: AbortSignal;
  /** Reports the progress, from 0 to 1, with an optional sentence about it. */
  progress(fraction: number, message?: string): void;
  /** Writes a line to the job's stderr, which `get_job_logs` shows. */
  log(message: unknown): void;
}

/** The job was cancelled, or its time is over. It is the reason of the signal. */
export class Cancelled extends Error {
  // Libraries tell a cancellation by this name.
  override name = "AbortError";

  constructor() {
    super("the job was cancelled, or its time is over");
  }
}

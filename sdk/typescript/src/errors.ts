/** The errors of this package. */

/** The base of all errors of this package. */
export class UnhangError extends Error {
  override name = "UnhangError";
}

/** There is no program `unhang`. */
export class BinaryNotFoundError extends UnhangError {
  override name = "BinaryNotFoundError";
}

/** Program and package are of different versions. */
export class VersionMismatchError extends UnhangError {
  override name = "VersionMismatchError";
}

/** unhang has accepted no job. The message says why, and what to do. */
export class JobRefusedError extends UnhangError {
  override name = "JobRefusedError";
}

/** A job has ended without a result. */
export class JobFailedError extends UnhangError {
  override name = "JobFailedError";

  /**
   * @param status `failed`, `cancelled` or `lost`.
   * @param report Everything that unhang knows of the end.
   */
  constructor(
    message: string,
    readonly status: string,
    readonly report: Readonly<Record<string, unknown>>,
  ) {
    super(message);
  }
}

/** The job has not ended within the time that was given to `wait`. It goes on. */
export class WaitTimeoutError extends UnhangError {
  override name = "WaitTimeoutError";
}

/** Returns what was thrown as a sentence. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

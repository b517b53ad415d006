/** The names that a server and the process of its job share. */

/** The file in the job's folder with the arguments. */
export const ARGUMENTS = "input.json";

/** The file in the job's folder with the result. */
export const RESULTS = "results.json";

/** The file in the job's folder with a result that is too large for an answer. `results.json` then names it. */
export const LARGE_RESULT = "large_result.json";

/** The key in `results.json` with the path of that file. */
export const LARGE_RESULT_KEY = "large_result_file";

/** The size in bytes of the largest result that is no large one. */
export const LARGEST_RESULT = 16 * 1024 * 1024;

/** The file in the job's folder with the error. */
export const ERROR = "error.json";

/** The variable with the job's folder. */
export const FOLDER = "UNHANG_JOB_DIR";

/** The variable with the job's id. */
export const ID = "UNHANG_JOB_ID";

/** The variable that makes the process of a job, so that a copy which the function starts by the same command is none. */
export const WORKER = "UNHANG_NODE_WORKER";

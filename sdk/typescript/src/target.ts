/** Names a function so that another process finds it: the address of its module, and the name of its export. */

import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, extname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { UnhangError } from "./errors.js";
import { WORKER } from "./names.js";

/** Where a function is. */
export interface Target {
  /**
   * The module: a path that is relative to the file with this call, as in `import`, or an address such as
   * `new URL("./simulate.js", import.meta.url)` or `import.meta.resolve("package")`.
   */
  readonly module: string | URL;
  /** The name of the export. Default: `default`. */
  readonly export?: string;
}

/** What compilers make `.js` of. A loader in the process of the job finds the source by the name of what it becomes. */
const SOURCES: Readonly<Record<string, readonly string[]>> = { ".js": [".ts", ".tsx", ".jsx"], ".mjs": [".mts"], ".cjs": [".cts"] };

/** Flags of Node.js that are about one process, and not about how modules are loaded. */
const OWN_FLAGS = /^--(?:inspect|watch|test|eval|print|check|interactive|input-type|cpu-prof|heap-prof|prof|title|import-self)/;
const OWN_SHORT_FLAGS = new Set(["-e", "-p", "-pe", "-c", "-i"]);

/**
 * Returns the command that runs the function as a job.
 *
 * @param caller The function of this package that the user's file has called: a relative path is relative to that file.
 * @throws {UnhangError} There is no such module.
 */
export function commandOf(target: Target, caller: (...args: never[]) => unknown): string[] {
  if (!(target?.module instanceof URL) && (typeof target?.module !== "string" || target.module === "")) {
    throw new UnhangError("`module` is missing: write the path of the function's module, such as \"./simulate.js\"");
  }
  if (target.export !== undefined && (typeof target.export !== "string" || target.export === "")) {
    throw new UnhangError("`export` is the name of the function as a text, such as \"run\", and not the function itself");
  }
  const worker = fileURLToPath(new URL("./worker.js", import.meta.url));
  return [process.execPath, ...loaderFlags(), worker, addressOf(target.module, fileOf(caller)), target.export ?? "default"];
}

/** Returns the variables that a job needs besides those of this process. */
export function workerEnvironment(): Record<string, string> {
  return { [WORKER]: "1" };
}

function addressOf(module: string | URL, file: string | undefined): string {
  const from = file ?? process.argv[1] ?? `${process.cwd()}/`;
  const address = resolved(String(module), from);
  if (!address.startsWith("file:")) {
    throw new UnhangError(`${address} is no file; a job imports its module from a file`);
  }
  const path = fileURLToPath(address);
  const extension = extname(path);
  const sources = (SOURCES[extension] ?? []).map((source) => path.slice(0, -extension.length) + source);
  if (![path, ...sources].some(isFile)) {
    throw new UnhangError(
      `there is no module ${path}; a relative path is relative to ${from}, and new URL("./module.js", import.meta.url) names a module ` +
        "wherever the call is",
    );
  }
  return address;
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

function resolved(module: string, from: string): string {
  if (/^[a-z][a-z\d+.-]+:/i.test(module)) {
    return module;
  }
  if (/^\.{0,2}\//.test(module)) {
    return new URL(encodePath(module), pathToFileURL(from)).href;
  }
  try {
    return pathToFileURL(createRequire(from).resolve(module)).href;
  } catch (error) {
    throw new UnhangError(
      `there is no module ${module} for ${dirname(from)}: write ./${module} for a file, or import.meta.resolve(${JSON.stringify(module)}) ` +
        "for a package that cannot be required",
      { cause: error },
    );
  }
}

function encodePath(path: string): string {
  return path.split("/").map(encodeURIComponent).join("/");
}

function loaderFlags(): string[] {
  const flags: string[] = [];
  let isValue = false;
  for (const flag of process.execArgv) {
    const isOwn = isValue || OWN_SHORT_FLAGS.has(flag) || OWN_FLAGS.test(flag);
    if (!isOwn) {
      flags.push(flag);
    }
    // The text of a program is a word of its own.
    isValue = !isValue && (["-e", "-p", "-pe", "--eval", "--print", "--input-type", "--title"].includes(flag));
  }
  return flags;
}

/** Returns the file with the call of this function, if the stack tells. */
function fileOf(caller: (...args: never[]) => unknown): string | undefined {
  const holder: { stack?: unknown } = {};
  const prepare = Error.prepareStackTrace;
  try {
    Error.prepareStackTrace = (_error, sites) => sites;
    Error.captureStackTrace(holder, caller);
    const sites = (holder.stack ?? []) as NodeJS.CallSite[];
    const name = sites.map((site) => site.getFileName()).find((file) => typeof file === "string" && !file.startsWith("node:"));
    return name?.startsWith("file:") ? fileURLToPath(name) : (name ?? undefined);
  } catch {
    // With `--frozen-intrinsics` nobody can ask for the stack.
    return undefined;
  } finally {
    // Strict mode would throw here too.
    Reflect.set(Error, "prepareStackTrace", prepare);
  }
}

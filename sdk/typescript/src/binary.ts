/** Finds the program `unhang`, and compares its version with that of this package. */

import { spawnSync } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join, resolve } from "node:path";

import { BinaryNotFoundError, VersionMismatchError } from "./errors.js";
import { version } from "./version.js";

/** The environment variable with the path of the program, for everybody who keeps it in a place of their own. */
export const VARIABLE = "UNHANG_BINARY";

const VERSION_LIMIT_MS = 30_000;
const LONGEST_SAYING = 500;

let found: string | undefined;

/**
 * Returns the absolute path of the program `unhang`: that of `UNHANG_BINARY`, of the npm package `unhang`, or of `PATH`.
 *
 * @throws {BinaryNotFoundError} There is none.
 * @throws {VersionMismatchError} Its version does not fit to this package.
 */
export function binary(): string {
  if (found === undefined) {
    const path = find();
    demandVersion(path);
    found = path;
  }
  return found;
}

function find(): string {
  const named = process.env[VARIABLE];
  if (named) {
    const path = resolve(named);
    if (!isProgram(path)) {
      throw new BinaryNotFoundError(`${VARIABLE} is ${named}, and no program is there`);
    }
    return path;
  }
  const path = ofPackage() ?? onPath();
  if (path === undefined) {
    throw new BinaryNotFoundError(
      `there is no program \`unhang\` in the package @unhang/${process.platform}-${process.arch}, which \`npm install unhang@${version}\` ` +
        `brings as an optional dependency, or on PATH; install it, or set ${VARIABLE} to its path`,
    );
  }
  return path;
}

/** Returns the program in the package for this system, without the script that may stand before it. */
function ofPackage(): string | undefined {
  try {
    const main = createRequire(import.meta.url).resolve("unhang/package.json");
    const path = createRequire(main).resolve(`@unhang/${process.platform}-${process.arch}/bin/unhang`);
    return isProgram(path) ? path : undefined;
  } catch {
    return undefined;
  }
}

function onPath(): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  return folders.map((folder) => resolve(join(folder, "unhang"))).find(isProgram);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function demandVersion(path: string): void {
  const told = spawnSync(path, ["--version"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    timeout: VERSION_LIMIT_MS,
  });
  if (told.error !== undefined) {
    throw new BinaryNotFoundError(`${path} does not run: ${told.error.message}`);
  }
  const [name, its, ...rest] = told.stdout.trim().split(/\s+/);
  if (told.status !== 0 || name !== "unhang" || its === undefined || rest.length > 0) {
    // The script of the npm package says on stderr which package of a program is missing.
    const said = (told.stdout.trim() || told.stderr.trim()).slice(0, LONGEST_SAYING);
    throw new BinaryNotFoundError(`${path} is not unhang, or does not work: \`--version\` says ${JSON.stringify(said)}`);
  }
  if (series(its) !== series(version)) {
    throw new VersionMismatchError(
      `the program ${path} is unhang ${its}, and the package @unhang/jobs is ${version}; ` +
        `install one version of both (\`npm install @unhang/jobs@${its}\` takes the program's), or set ${VARIABLE}`,
    );
  }
}

/** Returns the part of a version that program and package share: before 1.0, also the second number. */
function series(text: string): string {
  const numbers = (text.split("-")[0] ?? "").split(".");
  return numbers.slice(0, numbers[0] === "0" ? 2 : 1).join(".");
}

/** The guard in front of a server, for programs that use the official client. */

import { binary } from "./binary.js";

export interface GuardOptions {
  /** The server's name in logs and errors. */
  readonly name?: string;
  /** The server's environment, as without the guard. */
  readonly env?: Record<string, string>;
  /** The server's working folder, as without the guard. */
  readonly cwd?: string;
}

/** The parameters of a stdio client. */
export interface GuardedServer {
  command: string;
  args: string[];
  env?: Record<string, string>;
  cwd?: string;
}

/** Returns the parameters of a `StdioClientTransport` for this server, with `unhang wrap` in front of it. */
export function guard(command: string, args: readonly string[] = [], options: GuardOptions = {}): GuardedServer {
  const { name, env, cwd } = options;
  return {
    command: binary(),
    args: ["wrap", ...(name === undefined ? [] : ["--name", name]), "--", command, ...args],
    ...(env === undefined ? {} : { env }),
    ...(cwd === undefined ? {} : { cwd }),
  };
}

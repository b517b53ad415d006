/** Keeps the secrets of the environment out of errors. */

import { inspect } from "node:util";

const SHORTEST_SECRET = 8;
const NAMES = /KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH|COOKIE|PRIVATE|BEARER|DSN|(?:^|_)PAT(?:_|$)/i;
/** Folders, which a stack is full of. */
const NO_SECRETS = new Set(["PWD", "OLDPWD"]);
const PASSWORD_OF_URL = /^[a-z][a-z\d+.-]*:\/\/[^/@\s]*:([^/@\s]+)@/i;
/** `inspect` writes this behind a string that it has cut. */
const CUT = /["'`]?\.\.\. \d+ more characters?/g;

/** Replaces the values of variables whose names sound like secrets, and the passwords of those that are URLs. */
export function withoutSecrets(text: string): string {
  // A secret may begin with another one, so the longest comes first.
  const secrets = secretsOf(process.env).sort(([a], [b]) => b.length - a.length);
  const longest = secrets[0]?.[0].length ?? 0;
  const whole = secrets.reduce((rest, [secret, name]) => rest.replaceAll(secret, `[${name}]`), text.toWellFormed());
  return withoutHeads(whole, longest - 1);
}

/** Returns each form of each secret, with the name of its variable. */
function secretsOf(environment: NodeJS.ProcessEnv): [string, string][] {
  const forms: [string, string][] = [];
  for (const [name, value = ""] of Object.entries(environment)) {
    const password = PASSWORD_OF_URL.exec(value)?.[1];
    const isSecret = password !== undefined || (NAMES.test(name) && !NO_SECRETS.has(name));
    const values = isSecret ? [value, ...(password === undefined ? [] : [password])] : [];
    for (const secret of values) {
      // As JSON and `inspect` write it, and each of its lines.
      const written = [secret, JSON.stringify(secret).slice(1, -1), inspect(secret).slice(1, -1), ...secret.split("\n")];
      forms.push(...written.filter(({ length }) => length >= SHORTEST_SECRET).map((form): [string, string] => [form, name]));
    }
  }
  return forms;
}

/** Leaves out so many characters before each cut: they may be the head of a secret. */
function withoutHeads(text: string, length: number): string {
  if (length < 1) {
    return text;
  }
  let rest = "";
  let end = 0;
  for (const { 0: mark, index } of text.matchAll(CUT)) {
    rest += text.slice(end, Math.max(end, index - length)) + mark;
    end = index + mark.length;
  }
  return rest + text.slice(end);
}

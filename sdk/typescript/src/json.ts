/** Turns what a function returns into JSON. What has no JSON form is named by its place. */

import { messageOf } from "./errors.js";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** The program refuses JSON that is nested more deeply, with what stands around this value. */
const DEEPEST = 100;
/** The program takes whole numbers of 64 bits, and others only as JSON writes fractions. */
const LARGEST_WHOLE = 2 ** 63;
const LONGEST_PLACE = 100;

/** A part of the value has no JSON form. The message names it. */
export class NotJsonError extends TypeError {
  override name = "NotJsonError";
}

/**
 * Returns the value as JSON has it. Throws `NotJsonError` if a part has no JSON form.
 *
 * Beside JSON's own types it takes objects with `toJSON`, such as dates, and maps with strings as keys, sets and typed arrays. `undefined`
 * is `null`, and is left out of an object.
 */
export function toJson(value: unknown, place = "the result", depth = 0, key = ""): Json {
  if (depth > DEEPEST) {
    throw new NotJsonError(`more than ${DEEPEST} levels are nested, or a part contains itself, at ${place.slice(0, LONGEST_PLACE)}…`);
  }
  switch (typeof value) {
    case "undefined":
      return null;
    case "boolean":
      return value;
    case "string":
      return value.toWellFormed();
    case "number":
      if (!Number.isFinite(value)) {
        throw new NotJsonError(`${place} is ${value}, which JSON does not have; use null or a string in its place`);
      }
      return value;
    case "object":
      return value === null ? null : readable(place, () => ofObject(value, place, depth, key));
    default:
      throw new NotJsonError(`${place} is a ${typeof value}, which has no JSON form; use numbers, strings, arrays and objects`);
  }
}

/** Names the part whose code fails, such as a getter, `toJSON` or a revoked proxy. */
function readable(place: string, work: () => Json): Json {
  try {
    return work();
  } catch (error) {
    throw error instanceof NotJsonError ? error : new NotJsonError(`${place} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/** Writes JSON. Whole numbers of more than 64 bits get an exponent, and the value stays the same. */
export function textOf(value: Json): string {
  if (typeof value === "number") {
    return Number.isInteger(value) && Math.abs(value) >= LARGEST_WHOLE ? value.toExponential() : JSON.stringify(value);
  }
  if (Array.isArray(value)) {
    return `[${value.map(textOf).join(",")}]`;
  }
  if (typeof value === "object" && value !== null) {
    return `{${Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}:${textOf(member)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

function ofObject(value: object, place: string, depth: number, key: string): Json {
  if (value instanceof Date && Number.isNaN(value.getTime())) {
    throw new NotJsonError(`${place} is an invalid date`);
  }
  if ("toJSON" in value && typeof value.toJSON === "function") {
    return toJson(value.toJSON(key), place, depth + 1);
  }
  if (Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView))) {
    // Array.from, since `map` leaves holes as they are, and `map` of a typed array returns a typed array.
    const members = value as unknown as ArrayLike<unknown>;
    return Array.from(members, (member, index) => toJson(member, `${place}[${index}]`, depth + 1, String(index)));
  }
  if (value instanceof Set) {
    return [...value].map((member) => toJson(member, `a member of ${place}`, depth + 1));
  }
  if (value instanceof Map) {
    return ofMembers([...value], place, depth);
  }
  const members = Object.entries(value);
  const prototype: unknown = Object.getPrototypeOf(value);
  // An object of a class shows its members, and one that shows none keeps what it has to itself.
  const isHidden = members.length === 0 && prototype !== Object.prototype && prototype !== null;
  if (isHidden || value instanceof Error) {
    throw new NotJsonError(`${place} is of the class ${value.constructor?.name || "without a name"}, which has no JSON form`);
  }
  return ofMembers(members, place, depth);
}

function ofMembers(members: [unknown, unknown][], place: string, depth: number): Json {
  const object: { [key: string]: Json } = {};
  for (const [key, member] of members) {
    if (typeof key !== "string") {
      throw new NotJsonError(`a key of ${place} is a ${typeof key}, and JSON's keys are strings`);
    }
    if (member !== undefined) {
      const its = /^[A-Za-z_$][\w$]*$/.test(key) ? `${place}.${key}` : `${place}[${JSON.stringify(key)}]`;
      const converted = toJson(member, its, depth + 1, key);
      const name = key.toWellFormed();
      if (Object.hasOwn(object, name)) {
        throw new NotJsonError(`two keys of ${place} are ${JSON.stringify(name)} as JSON`);
      }
      // A plain assignment of `__proto__` would set the prototype.
      Object.defineProperty(object, name, { value: converted, enumerable: true, configurable: true, writable: true });
    }
  }
  return object;
}

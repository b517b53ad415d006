/** Types of tools and of the functions behind them. */

import type { JobContext } from "./context.js";
import type { Json } from "./json.js";

/** A schema by the specification https://standardschema.dev, such as those of zod, valibot and arktype. */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => unknown;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}

/** The schema of a tool's arguments: a schema of an object, or the schemas of its members. */
export type InputSchema = StandardSchema | Readonly<Record<string, StandardSchema>>;

type OutputOf<Schema> = Schema extends { readonly "~standard": { readonly types?: infer Types } }
  ? NonNullable<Types> extends { readonly output: infer Output }
    ? Output
    : unknown
  : unknown;

type OptionalKeys<Shape> = { [Key in keyof Shape]: undefined extends OutputOf<Shape[Key]> ? Key : never }[keyof Shape];

type OutputOfShape<Shape> = { [Key in Exclude<keyof Shape, OptionalKeys<Shape>>]: OutputOf<Shape[Key]> } & {
  [Key in OptionalKeys<Shape>]?: OutputOf<Shape[Key]>;
};

/**
 * What a value is after its way through JSON: a date is a string then, and a set is an array.
 *
 * A value that is JSON already stays as it is: its type may contain itself, and texts and numbers may have a brand. Some libraries of types
 * give a map all members of a set, so the map comes first.
 */
export type Jsonified<Value> = Value extends Json
  ? Value
  : Value extends { toJSON(...words: never[]): infer Told }
    ? Jsonified<Told>
    : Value extends { readonly BYTES_PER_ELEMENT: number; readonly [index: number]: number }
      ? number[]
      : Value extends ReadonlyMap<string, infer Member>
        ? Record<string, Jsonified<Member>>
        : Value extends ReadonlySet<infer Member>
          ? Jsonified<Member>[]
          : Value extends object
            ? { [Key in keyof Value]: Jsonified<Value[Key]> }
            : Value;

/** The arguments of a function whose tool has this schema. */
export type InputOf<Schema> = Jsonified<Schema extends StandardSchema ? OutputOf<Schema> : OutputOfShape<Schema>>;

/**
 * A function that runs as a job: it gets the arguments of the call, and what it may tell about itself.
 *
 * The arguments come as JSON: a schema that makes a date of a string checks the call, and the function gets the string.
 */
export type JobFunction<Schema, Result = unknown> = (input: InputOf<Schema>, job: JobContext) => Result | Promise<Result>;

/** What the framework says of a result, as JSON has it. */
export interface ToolResult {
  [key: string]: unknown;
  content: { type: "text"; text: string }[];
  structuredContent?: Record<string, unknown>;
  isError?: boolean;
}

/** Answers a call of a tool. The signal says that nobody waits any more. */
export type ToolHandler = (input: Record<string, unknown>, signal: AbortSignal | undefined) => Promise<ToolResult>;

/** The two frameworks, behind one interface: `McpServer` of `@modelcontextprotocol/sdk`, and of `@modelcontextprotocol/server`. */

import * as zod from "zod/v4";

import { messageOf, UnhangError } from "./errors.js";
import type { InputSchema, StandardSchema, ToolHandler } from "./types.js";

/** A server of one of the frameworks, as far as this package needs it. */
export interface ToolServer {
  // biome-ignore lint: the two frameworks agree on no narrower type.
  registerTool(name: string, config: any, callback: any): unknown;
}

/** What a client is told of a tool. */
export interface ToolDescription {
  readonly description?: string;
  readonly title?: string;
  readonly annotations?: Readonly<Record<string, unknown>>;
}

/** Registers tools. */
export interface Framework {
  /** Registers a tool whose arguments the framework checks. */
  addTyped(name: string, description: ToolDescription, schema: InputSchema | undefined, handler: ToolHandler): void;
  /** Registers a tool with this JSON schema. unhang checks the arguments. */
  addDescribed(name: string, description: ToolDescription, schema: ObjectSchema, handler: ToolHandler): void;
}

/** The JSON schema of a tool about jobs. */
export interface ObjectSchema {
  readonly type: "object";
  readonly properties: Readonly<Record<string, MemberSchema>>;
  readonly required?: readonly string[];
}

/** The parts of JSON schema that these tools use. */
export interface MemberSchema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
}

/** Returns the framework of a server, or throws `TypeError`. */
export function frameworkOf(server: ToolServer): Framework {
  if (typeof server?.registerTool !== "function") {
    throw new TypeError("jobs takes an McpServer of @modelcontextprotocol/sdk or @modelcontextprotocol/server");
  }
  // `tool` is the older form of `registerTool`, which the second SDK does not have.
  return "tool" in server ? new FirstSdk(server) : new SecondSdk(server);
}

/** The schemas of zod for tools about jobs, which all servers share. */
const zodObjects = new WeakMap<ObjectSchema, zod.ZodObject>();

/** `@modelcontextprotocol/sdk`: schemas are those of zod. */
class FirstSdk implements Framework {
  readonly #server: ToolServer;

  constructor(server: ToolServer) {
    this.#server = server;
  }

  addTyped(name: string, description: ToolDescription, schema: InputSchema | undefined, handler: ToolHandler): void {
    // Schemas of zod 3 are left to the SDK, which converts them by itself.
    demandObject(name, schema === undefined || isStandard(schema) ? schema : ofShape(schema), (type) => {
      return "_zod" in type ? zod.toJSONSchema(type as unknown as zod.ZodType, { io: "input" }) : undefined;
    });
    const config = { ...description, inputSchema: schema ?? {} };
    this.#server.registerTool(name, config, (input: Record<string, unknown> | undefined, extra: { signal?: AbortSignal }) =>
      handler(input ?? {}, extra?.signal),
    );
  }

  addDescribed(name: string, description: ToolDescription, schema: ObjectSchema, handler: ToolHandler): void {
    let object = zodObjects.get(schema);
    if (object === undefined) {
      const required = new Set(schema.required);
      const shape = Object.entries(schema.properties).map(([key, member]) => [key, zodOf(member, required.has(key))]);
      object = zod.object(Object.fromEntries(shape) as Record<string, zod.ZodType>);
      zodObjects.set(schema, object);
    }
    this.addTyped(name, description, object, handler);
  }
}

/** `@modelcontextprotocol/server`: schemas are standard schemas that know their JSON schema. */
class SecondSdk implements Framework {
  readonly #server: ToolServer;

  constructor(server: ToolServer) {
    this.#server = server;
  }

  addTyped(name: string, description: ToolDescription, schema: InputSchema | undefined, handler: ToolHandler): void {
    demandObject(name, schema !== undefined && isStandard(schema) ? schema : undefined, (type) => {
      const convert = (type["~standard"] as { jsonSchema?: { input(options: object): unknown } }).jsonSchema;
      if (convert === undefined) {
        throw new TypeError("the library of the schema does not tell its JSON schema (zod does from 4.2 on)");
      }
      return convert.input({ target: "draft-2020-12" });
    });
    const empty: ObjectSchema = { type: "object", properties: {} };
    // Without a schema, the function gets no arguments, as with the first SDK.
    this.#register(name, description, schema ?? standardSchema(empty, () => ({})), handler);
  }

  addDescribed(name: string, description: ToolDescription, schema: ObjectSchema, handler: ToolHandler): void {
    this.#register(name, description, standardSchema(schema), handler);
  }

  #register(name: string, description: ToolDescription, inputSchema: unknown, handler: ToolHandler): void {
    const callback = (input: Record<string, unknown> | undefined, context: { mcpReq?: { signal?: AbortSignal } }) =>
      handler(input ?? {}, context?.mcpReq?.signal);
    this.#server.registerTool(name, { ...description, inputSchema }, callback);
  }
}

/** Returns the schema of an object with these members; `undefined` if one of them is of zod 3. */
function ofShape(shape: Readonly<Record<string, StandardSchema>>): StandardSchema | undefined {
  const isOfZod4 = Object.values(shape).every((member) => typeof member === "object" && "_zod" in member);
  return isOfZod4 ? (zod.object(shape as zod.ZodRawShape) as StandardSchema) : undefined;
}

function isStandard(schema: InputSchema): schema is StandardSchema {
  return "~standard" in schema;
}

/** Schemas that can be told to clients: servers over HTTP are made anew for each session, often with the same schemas. */
const good = new WeakSet<StandardSchema>();

/** Throws if a client could not be told the schema: it would get no list of tools at all. */
function demandObject(name: string, schema: StandardSchema | undefined, convert: (schema: StandardSchema) => unknown): void {
  if (schema === undefined || good.has(schema)) {
    return;
  }
  let told: unknown;
  try {
    told = convert(schema);
  } catch (error) {
    throw new UnhangError(`the inputSchema of \`${name}\` cannot be told to clients: ${messageOf(error)}`, { cause: error });
  }
  if (told !== undefined && (told as { type?: unknown }).type !== "object") {
    throw new UnhangError(
      `the inputSchema of \`${name}\` is not that of one object, which the arguments of a tool are: as JSON it has the type ` +
        `${JSON.stringify((told as { type?: unknown }).type) ?? "of none, as a union"}`,
    );
  }
  good.add(schema);
}

/** Returns a schema that tells this JSON schema and lets every value through, changed if need be. */
function standardSchema(schema: ObjectSchema, change: (value: unknown) => unknown = (value) => value): unknown {
  const validate = (value: unknown) => ({ value: change(value) });
  return { "~standard": { version: 1, vendor: "unhang", validate, jsonSchema: { input: () => schema, output: () => schema } } };
}

function zodOf(member: MemberSchema, isRequired: boolean): zod.ZodType {
  const { description, minimum, maximum, pattern } = member;
  let type: zod.ZodType;
  if (member.enum !== undefined) {
    type = zod.enum([...member.enum]);
  } else if (member.type === "string") {
    type = pattern === undefined ? zod.string() : zod.string().regex(new RegExp(pattern));
  } else if (member.type === "number" || member.type === "integer") {
    let number = member.type === "integer" ? zod.int() : zod.number();
    number = minimum === undefined ? number : number.min(minimum);
    type = maximum === undefined ? number : number.max(maximum);
  } else {
    type = zod.any();
  }
  if (!isRequired) {
    type = member.default === undefined ? type.optional() : type.default(member.default as never);
  }
  return description === undefined ? type : type.describe(description);
}

// A server written with the official TypeScript SDK that offers what the official conformance suite calls on a server.
//
// It serves HTTP in both eras. The names and the texts are those that the scenarios of the suite ask for.
//
// Usage: node typescript_conformance.mjs PORT

import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';

import {
    CLIENT_CAPABILITIES_META_KEY,
    McpServer,
    ResourceTemplate,
    acceptedContent,
    createRequestStateCodec,
    fromJsonSchema,
    inputRequired,
    inputResponse
} from '@modelcontextprotocol/server';
import { z } from 'zod';

import { serveHttp } from './typescript_http.mjs';

// An image of one pixel, and a sound of one sample.
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const WAV = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';
// The time between two reports of a tool, and how soon a client comes back after its stream was closed, in milliseconds.
const STEP = 50;
const RECONNECTION = 100;

// Seals the state of rounds, and finds what was changed.
const states = createRequestStateCodec({ key: randomBytes(32) });
const CAPABILITIES = {
    tools: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    logging: {},
    completions: {}
};

// Keeps every event, so that a client can take a stream up again after any of them.
class StoredEvents {
    #events = [];

    async storeEvent(stream, message) {
        this.#events.push({ stream, message });
        return String(this.#events.length);
    }

    async getStreamIdForEventId(id) {
        return this.#events[id - 1]?.stream;
    }

    async replayEventsAfter(id, { send }) {
        const stream = this.#events[id - 1]?.stream;
        for (let index = Number(id); index < this.#events.length; index += 1) {
            const event = this.#events[index];
            // An event without a method, a result or an error only opens its stream.
            if (event.stream === stream && event.message.jsonrpc !== undefined) {
                await send(String(index + 1), event.message);
            }
        }
        return stream;
    }
}

// What is there after every other change, and where each server has it. The SDK makes a server for each session, and one for each request of
// 2026-07-28.
const isThere = { tool: false, prompt: false };
const changing = new WeakMap();

const text = content => ({ type: 'text', text: content });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const embedded = (uri, mimeType, content) => ({ type: 'resource', resource: { uri, mimeType, text: content } });
const said = (...content) => ({ content: content.map(block => (typeof block === 'string' ? text(block) : block)) });

// Tools that only answer: the description, and the content.
const ANSWERS = {
    test_simple_text: ['Returns a text.', 'This is a simple text response for testing.'],
    test_image_content: ['Returns an image.', image],
    test_audio_content: ['Returns a sound.', { type: 'audio', data: WAV, mimeType: 'audio/wav' }],
    test_embedded_resource: [
        'Returns a resource.',
        embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')
    ],
    test_multiple_content_types: [
        'Returns a text, an image and a resource.',
        'Multiple content types test:',
        image,
        embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}')
    ]
};

// A schema with many keywords of JSON Schema 2020-12.
const SCHEMA = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: {
        address: {
            $anchor: 'addressDef',
            type: 'object',
            properties: { street: { type: 'string' }, city: { type: 'string' } }
        }
    },
    properties: {
        name: { type: 'string' },
        address: { $ref: '#/$defs/address' },
        contactMethod: { enum: ['phone', 'email'] },
        phone: { type: 'string' },
        email: { type: 'string' }
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false
};
const MIRRORED = {
    type: 'object',
    properties: { region: { type: 'string', 'x-mcp-header': 'Region' } },
    required: ['region']
};

function offerAnswers(server) {
    for (const [name, [description, ...content]] of Object.entries(ANSWERS)) {
        server.registerTool(name, { description }, () => said(...content));
    }
    server.registerTool('test_error_handling', { description: 'Fails.' }, () => {
        throw new Error('This tool intentionally returns an error for testing');
    });
    const greeting = { description: 'Greets somebody: the scenarios for tasks call it as a tool that is fast.' };
    server.registerTool('greet', { ...greeting, inputSchema: z.object({ name: z.string() }) }, ({ name }) =>
        said(`Hello, ${name}!`)
    );
    const computing = { description: 'Returns at once: the scenarios for tasks call it as a tool that may become a task.' };
    const work = z.object({ seconds: z.number(), label: z.string().default('') });
    server.registerTool('slow_compute', { ...computing, inputSchema: work }, ({ seconds, label }) =>
        said(`Computed ${label} without ${seconds} seconds of work`)
    );
    const mirroring = { description: 'Returns its argument, which a client repeats in a header.' };
    server.registerTool('test_mirrored_argument', { ...mirroring, inputSchema: fromJsonSchema(MIRRORED) }, ({ region }) =>
        said(`The region is ${region}`)
    );
    const described = { description: 'Has a schema with many keywords.', inputSchema: fromJsonSchema(SCHEMA) };
    server.registerTool('json_schema_2020_12_tool', described, () => said('The schema of this tool is its purpose'));
}

// Tools that send something before they answer.
function offerReports(server) {
    const log = (name, description, messages) =>
        server.registerTool(name, { description }, async context => {
            for (const message of messages) {
                await context.mcpReq.log('info', message);
                await pause(STEP);
            }
            return said('Everything was logged');
        });
    log('test_tool_with_logging', 'Logs three messages.', [
        'Tool execution started',
        'Tool processing data',
        'Tool execution completed'
    ]);
    log('test_logging_tool', 'Logs a message where the request asks for it.', ['Logged where that is wanted']);
    server.registerTool('test_tool_with_progress', { description: 'Reports progress three times.' }, async context => {
        const progressToken = context.mcpReq._meta?.progressToken;
        for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
            const params = { progressToken, progress, total: 100, message: `${progress} of 100` };
            await context.mcpReq.notify({ method: 'notifications/progress', params });
            await pause(STEP);
        }
        return said('Progress was reported');
    });
    const reconnecting = { description: 'Closes the stream of its call before it answers.' };
    server.registerTool('test_reconnection', reconnecting, async context => {
        await context.mcpReq.log('info', 'The stream of this call is about to be closed');
        context.http?.closeSSE?.();
        await pause(2 * RECONNECTION);
        return said('The client came back for this');
    });
    for (const kind of ['tool', 'prompt']) {
        server.registerTool(`test_trigger_${kind}_change`, { description: `Adds a ${kind} or removes it.` }, () => {
            change(kind);
            return said(`The ${kind}s have changed`);
        });
    }
}

function offerChanges(server) {
    const description = 'Comes and goes with every change.';
    const tool = server.registerTool('test_changing_tool', { description }, () => said('here'));
    const prompt = server.registerPrompt('test_changing_prompt', { description }, () => user(text('here')));
    tool.update({ enabled: isThere.tool });
    prompt.update({ enabled: isThere.prompt });
    changing.set(server, { tool, prompt });
}

// In a session the SDK announces a change by itself.
function change(kind) {
    isThere[kind] = !isThere[kind];
    for (const server of served.servers()) {
        changing.get(server)[kind].update({ enabled: isThere[kind] });
    }
    served.notify[`${kind}sChanged`]();
}

const form = properties => ({ type: 'object', properties, required: Object.keys(properties) });
const titled = word => ['First', 'Second', 'Third'].map((title, index) => ({ const: `value${index + 1}`, title: `${title} ${word}` }));
const OPTIONS = ['option1', 'option2', 'option3'];

// A value of each kind, with its default.
const DEFAULTS = {
    name: { type: 'string', default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true }
};
// A choice in each of the five ways to describe one.
const CHOICES = {
    untitledSingle: { type: 'string', enum: OPTIONS },
    titledSingle: { type: 'string', oneOf: titled('Option') },
    legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
    untitledMulti: { type: 'array', items: { type: 'string', enum: OPTIONS } },
    titledMulti: { type: 'array', items: { anyOf: titled('Choice') } }
};
const ACCOUNT = {
    username: { type: 'string', description: "User's response" },
    email: { type: 'string', description: "User's email address" }
};

// Tools that ask in the middle of their call, which a revision with a handshake allows.
function offerQuestions(server) {
    const sampling = { description: 'Asks the model.', inputSchema: z.object({ prompt: z.string() }) };
    server.registerTool('test_sampling', sampling, async ({ prompt }, context) => {
        const messages = [{ role: 'user', content: text(prompt) }];
        const answer = await context.mcpReq.requestSampling({ messages, maxTokens: 100 });
        return said(`LLM response: ${answer.content.text}`);
    });
    const completed = async (context, message, properties) => {
        const answer = await context.mcpReq.elicitInput({ mode: 'form', message, requestedSchema: form(properties) });
        return `action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`;
    };
    const asking = { description: 'Asks the user for a name and an address.', inputSchema: z.object({ message: z.string() }) };
    server.registerTool('test_elicitation', asking, async ({ message }, context) =>
        said(`User response: ${await completed(context, message, ACCOUNT)}`)
    );
    const defaulting = { description: 'Asks the user for values with defaults.' };
    server.registerTool('test_elicitation_sep1034_defaults', defaulting, async context =>
        said(`Elicitation completed: ${await completed(context, 'Please check these values', DEFAULTS)}`)
    );
    server.registerTool('test_elicitation_sep1330_enums', { description: 'Asks the user to choose.' }, async context =>
        said(`Elicitation completed: ${await completed(context, 'Please choose', CHOICES)}`)
    );
}

const elicit = (message, properties) => inputRequired.elicit({ message, requestedSchema: form(properties) });
const sample = (prompt, maxTokens) =>
    inputRequired.createMessage({ messages: [{ role: 'user', content: text(prompt) }], maxTokens });
const yourName = () => elicit('What is your name?', { name: { type: 'string' } });

// Returns the answers to these questions, or nothing if one is missing.
function answers(context, questions) {
    const given = Object.keys(questions).map(key => inputResponse(context.mcpReq.inputResponses, key));
    const isAnswered = view => view.kind !== 'missing' && (view.kind !== 'elicit' || view.action === 'accept');
    return given.every(isAnswered) ? given : undefined;
}

const CONFIRM = { confirm: elicit('Please confirm', { ok: { type: 'boolean' } }) };

// What each tool with one question asks, and what it says of the answer.
const ONE_QUESTION = {
    // The scenarios for tasks call it as a tool that asks.
    confirm_delete: [CONFIRM, () => 'The file stays where it is'],
    test_input_required_result_elicitation: [{ user_name: yourName() }, ([name]) => `Hello, ${name.content.name}!`],
    test_streaming_elicitation: [{ user_name: yourName() }, ([name]) => `Hello, ${name.content.name}!`],
    test_input_required_result_sampling: [
        { capital_question: sample('What is the capital of France?', 100) },
        ([answer]) => `The model said: ${answer.result.content.text}`
    ],
    test_input_required_result_list_roots: [
        { client_roots: inputRequired.listRoots() },
        ([{ roots }]) => `The roots: ${roots.map(root => root.uri).join(', ')}`
    ],
    // The SDK refuses to ask a client for what it has not declared.
    test_missing_capability: [{ pong: sample('Say pong', 16) }, () => 'The client samples']
};
const THREE = { user_name: yourName(), greeting: sample('Generate a greeting', 50), client_roots: inputRequired.listRoots() };
// What each tool asks that wants its state back.
const WITH_STATE = {
    test_input_required_result_request_state: CONFIRM,
    test_input_required_result_tampered_state: CONFIRM,
    test_input_required_result_multiple_inputs: THREE
};
// What a client needs for a question.
const CAPABILITY = { user_name: 'elicitation', greeting: 'sampling', client_roots: 'roots' };

// Tools and a prompt that ask by their result, as 2026-07-28 does.
function offerRounds(server) {
    for (const [name, [inputRequests, say]] of Object.entries(ONE_QUESTION)) {
        server.registerTool(name, { description: 'Asks one question.' }, context => {
            const given = answers(context, inputRequests);
            return given ? said(say(given)) : inputRequired({ inputRequests });
        });
    }
    for (const [name, inputRequests] of Object.entries(WITH_STATE)) {
        server.registerTool(name, { description: 'Asks, and wants its state back.' }, async context => {
            if (context.mcpReq.requestState() === name && answers(context, inputRequests)) {
                return said('state-ok: all answers came, and the state with them');
            }
            return inputRequired({ inputRequests, requestState: await states.mint(name) });
        });
    }
    const rounds = { description: 'Asks twice, one question after the other.' };
    server.registerTool('test_input_required_result_multi_round', rounds, async context => {
        const state = context.mcpReq.requestState() ?? {};
        const color = acceptedContent(context.mcpReq.inputResponses, 'step2')?.color;
        if (state.name && color) {
            return said(`${state.name} likes ${color}`);
        }
        const name = state.name ?? (state.round === 1 ? acceptedContent(context.mcpReq.inputResponses, 'step1')?.name : undefined);
        if (name) {
            const step2 = elicit('Step 2: What is your favorite color?', { color: { type: 'string' } });
            return inputRequired({ inputRequests: { step2 }, requestState: await states.mint({ name }) });
        }
        const step1 = elicit('Step 1: What is your name?', { name: { type: 'string' } });
        return inputRequired({ inputRequests: { step1 }, requestState: await states.mint({ round: 1 }) });
    });
    const possible = { description: 'Asks for what the client can answer.' };
    server.registerTool('test_input_required_result_capabilities', possible, context => {
        const declared = context.mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? server.server.getClientCapabilities() ?? {};
        const askable = Object.entries(THREE).filter(([key]) => declared[CAPABILITY[key]] !== undefined);
        const inputRequests = Object.fromEntries(askable);
        if (askable.length === 0 || answers(context, inputRequests)) {
            return said(`The client answered ${askable.length} questions`);
        }
        return inputRequired({ inputRequests });
    });
    const prompting = { description: 'Asks for context before it is complete.' };
    server.registerPrompt('test_input_required_result_prompt', prompting, context => {
        const inputRequests = { user_context: elicit('What context should the prompt use?', { context: { type: 'string' } }) };
        const given = answers(context, inputRequests);
        return given ? user(text(`Use this context: ${given[0].content.context}`)) : inputRequired({ inputRequests });
    });
}

const user = (...contents) => ({ messages: contents.map(content => ({ role: 'user', content })) });

function offerListings(server) {
    const resource = (name, mimeType, content) => {
        const uri = `test://${name}`;
        const read = () => ({ contents: [{ uri, mimeType, ...content }] });
        server.registerResource(name, uri, { description: 'A resource that does not change.', mimeType }, read);
    };
    resource('static-text', 'text/plain', { text: 'This is the content of the static text resource.' });
    resource('static-binary', 'image/png', { blob: PNG });
    resource('watched-resource', 'text/plain', { text: 'Watched resource content.' });
    const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
    const data = { description: 'Data by their id.', mimeType: 'application/json' };
    server.registerResource('template', template, data, (uri, { id }) => {
        const content = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
        return { contents: [{ uri: uri.href, mimeType: data.mimeType, text: content }] };
    });
    for (const method of ['resources/subscribe', 'resources/unsubscribe']) {
        server.server.setRequestHandler(method, () => ({}));
    }
    server.registerPrompt('test_simple_prompt', { description: 'Says one thing.' }, () =>
        user(text('This is a simple prompt for testing.'))
    );
    server.registerPrompt('test_prompt_with_image', { description: 'Shows an image.' }, () =>
        user(image, text('Please analyze the image above.'))
    );
    const repeating = { description: 'Repeats its arguments.', argsSchema: z.object({ arg1: z.string(), arg2: z.string() }) };
    server.registerPrompt('test_prompt_with_arguments', repeating, ({ arg1, arg2 }) =>
        user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))
    );
    const embedding = { description: 'Embeds a resource.', argsSchema: z.object({ resourceUri: z.string() }) };
    server.registerPrompt('test_prompt_with_embedded_resource', embedding, ({ resourceUri }) =>
        user(
            embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
            text('Please process the embedded resource above.')
        )
    );
    server.server.setRequestHandler('completion/complete', ({ params }) => {
        const values = ['paris', 'park', 'party'].filter(value => value.startsWith(params.argument.value));
        return { completion: { values, total: values.length, hasMore: false } };
    });
}

function offering() {
    const options = { capabilities: CAPABILITIES, requestState: { verify: states.verify } };
    const server = new McpServer({ name: 'typescript-conformance', version: '1' }, options);
    for (const offer of [offerAnswers, offerReports, offerChanges, offerQuestions, offerRounds, offerListings]) {
        offer(server);
    }
    return server;
}

const served = serveHttp(offering, process.argv[2], { eventStore: new StoredEvents(), retryInterval: RECONNECTION });

// Walks through a scenario with one of the two official TypeScript clients and writes down what it saw.
//
// Usage: typescript_client.mjs PLAN. The plan is JSON: `library` (`client` is `@modelcontextprotocol/client`, `sdk` the
// older `@modelcontextprotocol/sdk`, which knows handshakes alone), `url` of the server, or its `command` with `folder`
// and `environment` for it, `era` (`legacy` shakes hands, `auto` asks `server/discover` first), `steps`, `meeting`, the
// folder in which it is said that a step has been reached, and `transcript`, the file to write. What a step must have
// brought is not judged here: the caller reads the transcript.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const STATELESS = '2026-07-28';
const AWAIT_LIMIT_MS = 20_000;
const BETWEEN_LOOKS_MS = 20;

const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));
// The packages are installed in the current folder, not beside this file.
const installed = createRequire(pathToFileURL(`${process.cwd()}/`));

const libraries = {
    client() {
        const { Client, StreamableHTTPClientTransport } = installed('@modelcontextprotocol/client');
        const { StdioClientTransport, getDefaultEnvironment } = installed('@modelcontextprotocol/client/stdio');
        // The client asks a subclass what it can do in place; for the class itself it would start a second process.
        class OneProcess extends StdioClientTransport {}
        return {
            Client,
            Http: StreamableHTTPClientTransport,
            Stdio: OneProcess,
            getDefaultEnvironment,
            named: method => method,
            version: client => client.getNegotiatedProtocolVersion()
        };
    },
    sdk() {
        const { Client } = installed('@modelcontextprotocol/sdk/client/index.js');
        const { StreamableHTTPClientTransport } = installed('@modelcontextprotocol/sdk/client/streamableHttp.js');
        const { StdioClientTransport, getDefaultEnvironment } = installed('@modelcontextprotocol/sdk/client/stdio.js');
        const types = installed('@modelcontextprotocol/sdk/types.js');
        // The client says to its transport alone which revision was agreed on.
        class Telling extends StdioClientTransport {
            setProtocolVersion(version) {
                this.protocolVersion = version;
            }
        }
        const schemas = {
            'sampling/createMessage': types.CreateMessageRequestSchema,
            'elicitation/create': types.ElicitRequestSchema,
            'roots/list': types.ListRootsRequestSchema,
            'notifications/message': types.LoggingMessageNotificationSchema,
            'notifications/resources/updated': types.ResourceUpdatedNotificationSchema,
            'notifications/resources/list_changed': types.ResourceListChangedNotificationSchema
        };
        return {
            Client,
            Http: StreamableHTTPClientTransport,
            Stdio: Telling,
            getDefaultEnvironment,
            named: method => schemas[method],
            version: client => client.transport.protocolVersion
        };
    }
};

const library = libraries[plan.library]();
const heard = {};
let wake = () => {};
let subscription;

function note(what, params = null) {
    (heard[what] ??= []).push(params);
    wake();
}

function seen() {
    return Object.fromEntries(Object.entries(heard).map(([what, all]) => [what, all.length]));
}

function connectable() {
    const client = new library.Client(
        { name: 'unhang-real', version: '1.0.0' },
        {
            capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } },
            versionNegotiation: { mode: plan.era }
        }
    );
    const answers = {
        'sampling/createMessage': ({ params }) => {
            note('sampling', params);
            const content = { type: 'text', text: 'sampled by the TypeScript client' };
            return { role: 'assistant', content, model: 'none', stopReason: 'endTurn' };
        },
        'elicitation/create': ({ params }) => {
            note('elicitation', params);
            return params.mode === 'url'
                ? { action: 'accept' }
                : { action: 'accept', content: { name: 'Ada', check: true } };
        },
        'roots/list': () => {
            note('roots');
            return { roots: [{ uri: pathToFileURL(plan.folder).href, name: 'here' }] };
        }
    };
    const hears = {
        'notifications/message': ({ params }) => note('log', params),
        'notifications/resources/updated': ({ params }) => note('update', params),
        'notifications/resources/list_changed': () => note('changed')
    };
    for (const [method, answer] of Object.entries(answers)) {
        client.setRequestHandler(library.named(method), async request => answer(request));
    }
    for (const [method, hear] of Object.entries(hears)) {
        client.setNotificationHandler(library.named(method), hear);
    }
    return client;
}

function transport() {
    if (plan.url) {
        return new library.Http(new URL(plan.url));
    }
    const [command, ...args] = plan.command;
    const env = { ...library.getDefaultEnvironment(), ...plan.environment };
    return new library.Stdio({ command, args, env, cwd: plan.folder, stderr: 'inherit' });
}

async function awaited(step) {
    const limit = AbortSignal.timeout(AWAIT_LIMIT_MS);
    while ((heard[step.seen]?.length ?? 0) < step.least) {
        await new Promise((resolve, reject) => {
            wake = resolve;
            limit.addEventListener('abort', () => reject(new Error(`no ${step.seen} within ${AWAIT_LIMIT_MS} ms`)));
        });
    }
    return seen();
}

// Says that this step has been reached, and waits for leave to go on.
async function meet(name) {
    writeFileSync(`${plan.meeting}/${name}.here`, '');
    const limit = AbortSignal.timeout(AWAIT_LIMIT_MS);
    while (!existsSync(`${plan.meeting}/${name}.go`)) {
        await pause(BETWEEN_LOOKS_MS, undefined, { signal: limit });
    }
    return {};
}

async function subscribe(client, uri) {
    if (library.version(client) !== STATELESS) {
        return client.subscribeResource({ uri });
    }
    subscription = await client.listen({ resourcesListChanged: true, resourceSubscriptions: [uri] });
    return {};
}

async function unsubscribe(client, uri) {
    if (library.version(client) !== STATELESS) {
        return client.unsubscribeResource({ uri });
    }
    await subscription.close();
    return {};
}

function perform(client, step, told) {
    switch (step.do) {
        case 'await':
            return awaited(step);
        case 'meet':
            return meet(step.name);
        case 'ping':
            return client.ping();
        case 'list_tools':
            return client.listTools();
        case 'list_resources':
            return client.listResources();
        case 'list_templates':
            return client.listResourceTemplates();
        case 'list_prompts':
            return client.listPrompts();
        case 'call': {
            const onprogress = progress => {
                told.push(progress);
                note('progress');
            };
            const params = { name: step.tool, arguments: step.arguments };
            if (library.version(client) === STATELESS) {
                params._meta = { 'io.modelcontextprotocol/logLevel': 'debug' };
            }
            return plan.library === 'sdk'
                ? client.callTool(params, undefined, step.progress ? { onprogress } : {})
                : client.callTool(params, step.progress ? { onprogress } : {});
        }
        case 'read':
            return client.readResource({ uri: step.uri });
        case 'prompt':
            return client.getPrompt({ name: step.prompt, arguments: step.arguments });
        case 'complete':
            return client.complete({ ref: { type: 'ref/prompt', name: step.prompt }, argument: step.argument });
        case 'level':
            return client.setLoggingLevel(step.level);
        case 'subscribe':
            return subscribe(client, step.uri);
        case 'unsubscribe':
            return unsubscribe(client, step.uri);
        default:
            throw new Error(`this client cannot ${step.do}`);
    }
}

async function outcome(client, step) {
    if (step.handshake_only && library.version(client) === STATELESS) {
        return { skipped: true };
    }
    if (step.do === 'together') {
        return { together: await Promise.all(step.steps.map(each => outcome(client, each))) };
    }
    const told = [];
    const progress = () => (told.length > 0 ? { progress: told } : {});
    try {
        const result = await perform(client, step, told);
        return { result, ...progress() };
    } catch (error) {
        if (typeof error.code !== 'number') {
            throw error;
        }
        return { error: { code: error.code, message: error.message, data: error.data }, ...progress() };
    }
}

const client = connectable();
const way = transport();
await client.connect(way);
const version = library.version(client);
const server = {
    info: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions()
};
const outcomes = [];
for (const step of plan.steps) {
    outcomes.push(await outcome(client, step));
}
await way.terminateSession?.();
await client.close();
writeFileSync(plan.transcript, JSON.stringify({ version, server, outcomes, heard }));

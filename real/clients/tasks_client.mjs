// Calls a slow tool in the way in which one of the official libraries drives tasks, and writes down what came of it.
//
// Usage: tasks_client.mjs PLAN. The plan is JSON: `library` (`sdk` is `@modelcontextprotocol/sdk`, whose experimental tasks are those of
// 2025-11-25; `ext-tasks` is `@modelcontextprotocol/ext-tasks` on `@modelcontextprotocol/client`, which drives either dialect), `era`
// (`legacy` shakes hands, `auto` asks `server/discover` first), `url` of the server or its `command` with its `environment`, `tool`, `calls` (arguments of each), `cancelled` (those of
// a call that is cancelled as soon as there is a task), and `transcript`, the file to write. What a call must have brought is not judged here.

import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const STATELESS = '2026-07-28';
const INFO = { name: 'unhang-real-tasks', version: '1.0.0' };

const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));
// The packages are installed in the current folder, not beside this file.
const installed = createRequire(pathToFileURL(`${process.cwd()}/`));
const load = async name => import(pathToFileURL(installed.resolve(name)).href);

const answer = () => ({ action: 'accept', content: { name: 'Ada' } });

// Tasks of 2025-11-25, by the library that most clients have.
async function bySdk(transcript) {
    const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
    const { ElicitRequestSchema } = await load('@modelcontextprotocol/sdk/types.js');
    const client = new Client(INFO, { capabilities: { elicitation: { form: {} }, tasks: {} } });
    client.setRequestHandler(ElicitRequestSchema, answer);
    await client.connect(
        await transport('@modelcontextprotocol/sdk/client/streamableHttp.js', '@modelcontextprotocol/sdk/client/stdio.js')
    );
    await client.listTools();
    const streamed = async (args, seen) => {
        const call = { name: plan.tool, arguments: args };
        for await (const message of client.experimental.tasks.callToolStream(call, undefined, { task: {} })) {
            await seen(message);
        }
    };
    for (const args of plan.calls) {
        const entry = { arguments: args, statuses: [] };
        await streamed(args, message => {
            if (message.task) entry.statuses.push(message.task.status);
            if (message.type === 'result') entry.result = message.result;
        });
        // The library keeps the result of a task that has failed to itself.
        if (!entry.result && entry.statuses.at(-1) === 'failed') entry.failed = true;
        transcript.push(entry);
    }
    const cancelled = { arguments: plan.cancelled };
    await streamed(plan.cancelled, async message => {
        if (message.type !== 'taskCreated') return;
        cancelled.status = (await client.experimental.tasks.cancelTask(message.task.taskId)).status;
    });
    transcript.push(cancelled);
    await client.close();
}

// Tasks of either dialect, by the library that is made for them.
async function byExtTasks(transcript) {
    const { Client } = await load('@modelcontextprotocol/client');
    // It is there for `import` alone, which looks beside this file.
    const folder = `${process.cwd()}/node_modules/@modelcontextprotocol/ext-tasks/dist/client/index.js`;
    const { createTaskSessionFromClient, resultFromTaskOutcome, toolDeclarationFromMcpTool } = await import(
        pathToFileURL(folder).href
    );
    const capabilities = { elicitation: { form: {} }, extensions: { 'io.modelcontextprotocol/tasks': {} } };
    const client = new Client(INFO, { capabilities, versionNegotiation: { mode: plan.era } });
    const way = await transport('@modelcontextprotocol/client', '@modelcontextprotocol/client/stdio');
    await client.connect(way);
    const modern = {
        rawDispatch: plan.url ? dispatch : dispatchOn(way),
        v2RequestFraming: { protocolVersion: STATELESS, clientInfo: INFO, clientCapabilities: capabilities }
    };
    const session = createTaskSessionFromClient(client, {
        endpointId: 'unhang',
        onInputRequest: async () => answer(),
        ...(plan.era === 'auto' ? modern : {})
    });
    const tool = (await client.listTools()).tools.find(tool => tool.name === plan.tool);
    const options = {
        declaration: toolDeclarationFromMcpTool(tool),
        task: { preference: plan.era === 'auto' ? 'allow' : 'require' }
    };
    for (const args of plan.calls) {
        const execution = await session.callTool(plan.tool, args, options);
        const isTask = Boolean(execution.task ?? execution.controller);
        const entry = { arguments: args, isTask };
        try {
            entry.result = resultFromTaskOutcome((await execution.settle()).outcome);
        } catch (error) {
            // A task of 2025-11-25 whose tool has failed is an error to the library.
            if (error.name !== 'TaskFailedError' && error.constructor.name !== 'TaskFailedError') throw error;
            entry.failed = true;
        }
        transcript.push(entry);
    }
    await session.close();
    await client.close();
}

// The way to the server, made by the library.
async function transport(http, stdio) {
    if (plan.url) {
        const { StreamableHTTPClientTransport } = await load(http);
        return new StreamableHTTPClientTransport(new URL(plan.url));
    }
    const { StdioClientTransport, getDefaultEnvironment } = await load(stdio);
    const [command, ...args] = plan.command;
    const env = { ...getDefaultEnvironment(), ...plan.environment };
    return new StdioClientTransport({ command, args, env, cwd: plan.folder, stderr: 'inherit' });
}

let sent = 0;

// The same over pipes: it says it on the client's own way, and takes the answer before the client sees it.
function dispatchOn(way) {
    const waiting = new Map();
    const hear = way.onmessage;
    way.onmessage = (message, extra) => {
        const heard = waiting.get(message.id);
        if (!heard || message.method) return hear(message, extra);
        waiting.delete(message.id);
        heard(message);
    };
    return async bare => {
        const request = { jsonrpc: '2.0', id: `task-${++sent}`, ...bare };
        const answered = new Promise(resolve => waiting.set(request.id, resolve));
        await way.send(request);
        return answered;
    };
}

// What a host that speaks 2026-07-28 does with a request of the library's: it posts it.
async function dispatch(bare, options) {
    const request = { jsonrpc: '2.0', id: `task-${++sent}`, ...bare };
    const about = request.params?.taskId ?? request.params?.name;
    const headers = {
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        'mcp-protocol-version': STATELESS,
        'mcp-method': request.method,
        ...(about ? { 'mcp-name': about } : {})
    };
    const response = await fetch(plan.url, {
        method: 'POST',
        headers,
        body: JSON.stringify(request),
        signal: options?.signal
    });
    const text = await response.text();
    if (!response.headers.get('content-type')?.includes('event-stream')) return JSON.parse(text);
    const events = text.split('\n').filter(line => line.startsWith('data: {'));
    return events.map(line => JSON.parse(line.slice('data: '.length))).find(message => message.id === request.id);
}

const transcript = [];
await { sdk: bySdk, 'ext-tasks': byExtTasks }[plan.library](transcript);
writeFileSync(plan.transcript, JSON.stringify(transcript));

// Walks through a scenario with the official TypeScript client and writes down what it saw.
//
// Usage: typescript_client.mjs PLAN. The plan is JSON: `command` and `folder` of the server, `environment` for it,
// `era` (`legacy` shakes hands, `auto` asks `server/discover` first), `steps`, and `transcript`, the file to write.
// What a step must have brought is not judged here: the caller reads the transcript.

import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const STATELESS = '2026-07-28';
const AWAIT_LIMIT_MS = 20_000;

const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));
// The packages are installed in the current folder, not beside this file.
const installed = createRequire(pathToFileURL(`${process.cwd()}/`));
const { Client } = installed('@modelcontextprotocol/client');
const { StdioClientTransport, getDefaultEnvironment } = installed('@modelcontextprotocol/client/stdio');

// The client asks a subclass what it can do in place; for the class itself it would start a second process.
class OneProcess extends StdioClientTransport {}

const seen = {};
let wake = () => {};

function note(what) {
    seen[what] = (seen[what] ?? 0) + 1;
    wake();
}

function connectable() {
    const client = new Client(
        { name: 'unhang-real', version: '1.0.0' },
        {
            capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } },
            versionNegotiation: { mode: plan.era }
        }
    );
    client.setRequestHandler('sampling/createMessage', async () => {
        note('sampling');
        const content = { type: 'text', text: 'sampled by the TypeScript client' };
        return { role: 'assistant', content, model: 'none', stopReason: 'endTurn' };
    });
    client.setRequestHandler('elicitation/create', async request => {
        note('elicitation');
        if (request.params.mode === 'url') {
            return { action: 'accept' };
        }
        return { action: 'accept', content: { name: 'Ada', check: true } };
    });
    client.setRequestHandler('roots/list', async () => {
        note('roots');
        return { roots: [{ uri: pathToFileURL(plan.folder).href, name: 'here' }] };
    });
    client.setNotificationHandler('notifications/message', () => note('log'));
    client.setNotificationHandler('notifications/resources/updated', () => note('update'));
    return client;
}

async function awaited(step) {
    const limit = AbortSignal.timeout(AWAIT_LIMIT_MS);
    while ((seen[step.seen] ?? 0) < step.least) {
        await new Promise((resolve, reject) => {
            wake = resolve;
            limit.addEventListener('abort', () => reject(new Error(`no ${step.seen} within ${AWAIT_LIMIT_MS} ms`)));
        });
    }
    return { ...seen };
}

function perform(client, step) {
    switch (step.do) {
        case 'await':
            return awaited(step);
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
            const options = step.progress ? { onprogress: () => note('progress') } : {};
            return client.callTool({ name: step.tool, arguments: step.arguments }, options);
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
            return client.subscribeResource({ uri: step.uri });
        case 'unsubscribe':
            return client.unsubscribeResource({ uri: step.uri });
        default:
            throw new Error(`this client cannot ${step.do}`);
    }
}

async function outcome(client, step) {
    if (step.handshake_only && client.getNegotiatedProtocolVersion() === STATELESS) {
        return { skipped: true };
    }
    if (step.do === 'together') {
        return { together: await Promise.all(step.steps.map(each => outcome(client, each))) };
    }
    try {
        return { result: await perform(client, step) };
    } catch (error) {
        if (typeof error.code !== 'number') {
            throw error;
        }
        return { error: { code: error.code, message: error.message } };
    }
}

const [command, ...args] = plan.command;
const env = { ...getDefaultEnvironment(), ...plan.environment };
const client = connectable();
await client.connect(new OneProcess({ command, args, env, cwd: plan.folder, stderr: 'inherit' }));
const version = client.getNegotiatedProtocolVersion();
const outcomes = [];
for (const step of plan.steps) {
    outcomes.push(await outcome(client, step));
}
await client.close();
writeFileSync(plan.transcript, JSON.stringify({ version, outcomes, seen }));

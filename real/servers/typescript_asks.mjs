// A server written with the official TypeScript SDK whose tools ask their client, in each way that the SDK has.
//
// `ask` and `sample` send a request in the middle of the call, which the SDK allows up to 2025-11-25. `resolve` returns what it needs, and
// the SDK asks in the way of the client's revision.
//
// Usage: node typescript_asks.mjs [PORT]. With a port it serves HTTP, otherwise stdio.

import { McpServer, acceptedContent, inputRequired } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

import { serveHttp } from './typescript_http.mjs';

const NAME = z.object({ name: z.string() });
const REQUESTED = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };

const text = content => ({ content: [{ type: 'text', text: content }] });

function asking() {
    const server = new McpServer({ name: 'asks', version: '1' });
    server.registerTool('ask', { description: 'Asks the user.' }, async context => {
        const answer = await context.mcpReq.elicitInput({
            mode: 'form',
            message: 'Your name?',
            requestedSchema: REQUESTED
        });
        return text(`hello ${answer.content.name}`);
    });
    server.registerTool('sample', { description: 'Asks the model.' }, async context => {
        const messages = [{ role: 'user', content: { type: 'text', text: 'hi' } }];
        const answer = await context.mcpReq.requestSampling({ messages, maxTokens: 10 });
        return text(answer.content.text);
    });
    server.registerTool('resolve', { description: 'Asks the user in the way of the revision.' }, async context => {
        const answer = acceptedContent(context.mcpReq.inputResponses, 'name', NAME);
        if (answer === undefined) {
            const name = inputRequired.elicit({ message: 'Your name?', requestedSchema: REQUESTED });
            return inputRequired({ inputRequests: { name } });
        }
        return text(`hello ${answer.name}`);
    });
    return server;
}

const port = process.argv[2];
if (port === undefined) {
    serveStdio(asking);
} else {
    serveHttp(asking, port);
}

// Serves over HTTP what a server written with the official TypeScript SDK offers, in both eras at one URL of the loopback interface.
//
// The SDK serves 2026-07-28 by its handler. Each handshake begins a session, which has a server and a transport of its own. Only so can a
// server ask its client in the middle of a call.

import { randomUUID } from 'node:crypto';

import { serve } from '@hono/node-server';
import {
    WebStandardStreamableHTTPServerTransport,
    createMcpHandler,
    hostHeaderValidationResponse,
    isLegacyRequest,
    localhostAllowedHostnames,
    localhostAllowedOrigins,
    originValidationResponse
} from '@modelcontextprotocol/server';

// Serves what `create` makes. Returns what announces changes to clients of 2026-07-28, and the servers of all sessions. `options` are options
// of the transports of sessions.
export function serveHttp(create, port, options = {}) {
    const sessions = new Map();
    const modern = createMcpHandler(create, { legacy: 'reject' });

    async function begin(request) {
        const server = create();
        const transport = new WebStandardStreamableHTTPServerTransport({
            ...options,
            sessionIdGenerator: randomUUID,
            onsessioninitialized: id => void sessions.set(id, { server, transport }),
            onsessionclosed: id => void sessions.delete(id)
        });
        await server.connect(transport);
        // Without a handshake, the transport refuses the request, and nobody has the session.
        return transport.handleRequest(request);
    }

    async function answer(request) {
        const refusal =
            hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
            originValidationResponse(request, localhostAllowedOrigins());
        if (refusal) {
            return refusal;
        }
        if (new URL(request.url).pathname !== '/mcp') {
            return new Response('not found', { status: 404 });
        }
        if (!(await isLegacyRequest(request))) {
            return modern.fetch(request);
        }
        const id = request.headers.get('mcp-session-id');
        if (id === null) {
            return begin(request);
        }
        const session = sessions.get(id);
        if (session === undefined) {
            const error = { code: -32001, message: 'Session not found' };
            return Response.json({ jsonrpc: '2.0', error, id: null }, { status: 404 });
        }
        return session.transport.handleRequest(request);
    }

    serve({ fetch: answer, hostname: '127.0.0.1', port: Number(port) });
    return { notify: modern.notify, servers: () => [...sessions.values()].map(({ server }) => server) };
}

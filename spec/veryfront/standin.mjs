// standin.mjs - a stand-in for Veryfront: MCP on the official SDK's server, and the REST paths that its own SDK uses.
//
//   node standin.mjs SCHEMAS_DIR KEY        prints "PORT PID", serves 127.0.0.1 until SIGTERM, at most four minutes
//
// How it behaves is set by POST /control with a JSON object; GET /control tells which requests came. SCHEMAS_DIR holds the
// published schemas; without one, schemas that say less. Commands really run, in bubblewrap, with folders of their own.
import { spawn } from 'node:child_process';
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';

const require = createRequire(new URL('../peers/package.json', import.meta.url));
const { Server } = require('@modelcontextprotocol/sdk/server/index.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { CallToolRequestSchema, ListToolsRequestSchema, McpError } = require('@modelcontextprotocol/sdk/types.js');

const [schemasDir, KEY] = process.argv.slice(2);
const LIFE_MS = 240000;
const PROJECT = '11111111-2222-4333-8444-555555555555';

const behaviour = { sse: false, session: false, generation: 'new', answer: 'strict', page: 0, pending: 0, link: false, faults: [] };
const state = { requests: [], transports: new Map(), sandboxes: new Map(), order: [], commands: new Map(), root: null };
state.root = fs.mkdtempSync(path.join(process.env.DML_SPEC_TMP ?? os.tmpdir(), 'vf-'));

// ---- MCP ----

function published(name) {
  const file = path.join(schemasDir, `${name}.json`);
  if (fs.existsSync(file)) return JSON.parse(fs.readFileSync(file, 'utf8'));
  const properties = name.includes('create')
    ? { access_scope: {}, project_reference: {}, environment_id: {}, ttl_mode: {}, ttl_hours: {} }
    : { sandbox_id: {}, ttl_mode: {}, ttl_hours: {} };
  return { name, inputSchema: { type: 'object', properties } };
}

const TOOLS = {
  new: [published('veryfront__create_sandbox'), published('veryfront__update_sandbox_lifetime')],
  old: [
    { name: 'create_sandbox_session', inputSchema: { type: 'object', properties: { project_id: { type: 'string' } } } },
    {
      name: 'update_sandbox_session_lifetime',
      inputSchema: { type: 'object', properties: { id: { type: 'string' }, ttl_mode: { type: 'string' }, ttl_hours: { type: 'integer' } } },
    },
  ],
  scoped: [
    { name: 'create_sandbox_session', inputSchema: { type: 'object', properties: { access_scope: { type: 'string' } } } },
  ],
  none: [],
};

function sandboxOf(args, id) {
  return {
    id: id ?? crypto.randomUUID(),
    short_id: 'amber-fox',
    endpoint: 'https://amber-fox.sandbox.veryfront.example',
    status: 'provisioning',
    project_id: PROJECT,
    access_scope: args.access_scope ?? 'project',
    workspace_storage: 'persistent',
    ttl_mode: args.ttl_mode ?? 'default',
    ttl_hours: args.ttl_hours ?? null,
    expires_at: args.ttl_hours ? '2030-01-01T00:00:00Z' : null,
    created_at: '2026-11-30T12:00:00.000Z',
    last_activity_at: null,
  };
}

const SECRETS = () => `Denied by https://internal.veryfront.example/admin?key=${KEY} at /srv/api/handler.ts:12`;

// How a call of a tool is answered, by `behaviour.answer`.
const ANSWERS = {
  strict: (value) => ({ content: [{ type: 'text', text: JSON.stringify(value) }], structuredContent: value }),
  sloppy: (value) => {
    const wide = {
      ...value, owner_email: 'a@b.example', token: KEY, variable_snapshot: {
        source_environment_id: null, variable_count: 2, copied_at: null, variables: { A: KEY },
      },
    };
    return { content: [{ type: 'text', text: 'created' }], structuredContent: wide };
  },
  nulls: (value) => ({
    content: [], structuredContent: { ...value, ttl_hours: value.ttl_hours === null ? null : value.ttl_hours + 0.0, variable_snapshot: null },
  }),
  text: (value) => ({ content: [{ type: 'text', text: 'here it is' }, { type: 'text', text: JSON.stringify(value) }] }),
  prose: () => ({ content: [{ type: 'text', text: 'done' }] }),
  short: (value) => {
    const { access_scope: _, ...rest } = value;
    return { content: [], structuredContent: rest };
  },
  wrong: (value) => ({ content: [], structuredContent: { ...value, status: 'asleep' } }),
  huge: (value) => ({ content: [], structuredContent: { ...value, filler: 'x'.repeat(5 << 20) } }),
  failed: () => ({ isError: true, content: [{ type: 'text', text: SECRETS() }] }),
  credits: () => ({ isError: true, content: [{ type: 'text', text: `[insufficient-credits] ${SECRETS()}` }] }),
  limit: () => ({
    isError: true, content: [], structuredContent: { code: 'resource-limit-exceeded', detail: SECRETS() },
  }),
  absent: () => ({ isError: true, content: [{ type: 'text', text: JSON.stringify({ status: 404, message: SECRETS() }) }] }),
  forbidden: () => ({ isError: true, content: [], structuredContent: { status: 403, code: SECRETS(), message: SECRETS() } }),
  rpc: () => { throw new McpError(-32000, SECRETS(), { code: 'insufficient-credits', detail: SECRETS(), request_id: KEY }); },
  unknown: () => { throw new McpError(-32602, `Tool not found ${SECRETS()}`); },
};

function makeServer() {
  const server = new Server({ name: 'veryfront-standin', version: '1' }, { capabilities: { tools: {}, logging: {} } });
  server.setRequestHandler(ListToolsRequestSchema, async (request) => {
    const tools = TOOLS[behaviour.generation];
    if (!behaviour.page) return { tools };
    const from = Number(request.params?.cursor ?? 0);
    const filler = { name: `page_${from}`, inputSchema: { type: 'object' } };
    const isLast = from + 1 >= behaviour.page;
    return { tools: isLast ? [...tools, filler] : [filler], nextCursor: isLast ? undefined : String(from + 1) };
  });
  server.setRequestHandler(CallToolRequestSchema, async (request, extra) => {
    if (behaviour.chatter) {
      for (let i = 0; i < 3; i++) {
        await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data: SECRETS() } });
      }
    }
    const args = request.params.arguments ?? {};
    const known = TOOLS[behaviour.generation].some((tool) => tool.name === request.params.name);
    if (!known) throw new McpError(-32602, `Tool ${request.params.name} not found`);
    const value = sandboxOf(args, args.sandbox_id ?? args.id);
    if (!args.sandbox_id && !args.id) state.sandboxes.set(value.id, value);
    return ANSWERS[behaviour.answer](value);
  });
  return server;
}

async function mcp(req, res, body) {
  const id = req.headers['mcp-session-id'];
  const known = id && state.transports.get(id);
  if (known) return known.handleRequest(req, res, body);
  if (id) return json(res, 404, { jsonrpc: '2.0', error: { code: -32001, message: 'Session not found' }, id: null });
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: behaviour.session ? () => crypto.randomUUID() : undefined,
    enableJsonResponse: !behaviour.sse,
    onsessioninitialized: (sid) => state.transports.set(sid, transport),
  });
  const server = makeServer();
  if (!behaviour.session) res.on('close', () => { transport.close(); server.close(); });
  await server.connect(transport);
  return transport.handleRequest(req, res, body);
}

// ---- REST ----

function json(res, status, value, headers = {}) {
  res.writeHead(status, { 'Content-Type': 'application/json', ...headers });
  res.end(JSON.stringify(value));
}

function session(box) {
  const { access_scope: _a, workspace_storage: _w, ...shown } = box;
  return shown;
}

function createSession(res, body) {
  if (body.ttl_mode === 'duration' && !(body.ttl_hours > 0 && body.ttl_hours <= 24)) return json(res, 400, { error: 'ttl_hours' });
  const box = { ...sandboxOf(body), created_at: new Date().toISOString(), polls: behaviour.pending, status: 'running' };
  if (box.polls > 0) box.status = 'pending';
  if (body.ttl_hours) box.expires_at = new Date(Date.now() + body.ttl_hours * 3600000).toISOString();
  box.heartbeats = 0;
  box.dir = path.join(state.root, box.id);
  fs.mkdirSync(path.join(box.dir, 'workspace'), { recursive: true });
  fs.mkdirSync(path.join(box.dir, 'tmp'));
  state.sandboxes.set(box.id, box);
  state.order.unshift(box.id);
  return json(res, 201, session(box));
}

function listSessions(res, query) {
  const limit = Math.min(Number(query.get('limit') ?? 20), behaviour.pageSize ?? 100);
  const cursor = query.get('cursor');
  const from = cursor ? state.order.indexOf(cursor) + 1 : 0;
  const ids = state.order.slice(from, from + limit);
  const last = ids[ids.length - 1];
  const more = from + limit < state.order.length;
  const next = !more ? null : behaviour.link ? `/sandbox-sessions?cursor=${encodeURIComponent(last)}` : last;
  return json(res, 200, {
    data: ids.map((id) => session(state.sandboxes.get(id))), page_info: { self: null, first: null, next, prev: null },
  });
}

function getSession(res, box) {
  if (box.polls > 0) {
    box.polls -= 1;
    box.status = box.polls === 0 ? (behaviour.outcome ?? 'running') : 'provisioning';
  }
  return json(res, 200, session(box));
}

// A command in the sandbox's folders; the process table is the machine's, so that one command can signal another.
function start(box, body) {
  const args = ['--ro-bind', '/usr', '/usr', '--symlink', 'usr/bin', '/bin', '--symlink', 'usr/lib', '/lib', '--symlink', 'usr/lib64', '/lib64',
    '--ro-bind', '/etc', '/etc', '--proc', '/proc', '--dev', '/dev', '--bind', path.join(box.dir, 'workspace'), '/workspace',
    '--bind', path.join(box.dir, 'tmp'), '/tmp', '--chdir', body.cwd ?? '/workspace', 'bash', '-c', body.command];
  const child = spawn('bwrap', args, { stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: '/usr/bin:/bin', HOME: '/workspace', VF_BOX: box.id, ...body.env } });
  const seconds = body.timeout_seconds ?? 300;
  const timer = setTimeout(() => child.kill('SIGKILL'), seconds * 1000);
  child.on('exit', () => clearTimeout(timer));
  box.children = (box.children ?? new Set()).add(child);
  child.on('close', () => box.children.delete(child));
  return child;
}

function stream(res, box, body) {
  const mode = behaviour.exec;
  res.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
  const send = (event) => {
    const line = JSON.stringify(event) + '\n';
    if (mode !== 'drip') return res.write(line);
    for (const byte of Buffer.from(line)) res.write(Buffer.from([byte]));
    return true;
  };
  if (mode === 'garbage') return res.end('{"type":"stdout","data":"a"}\n<html>nope</html>\n');
  if (mode === 'noexit') return res.end('{"type":"stdout","data":"a"}\n');
  if (mode === 'reset') { res.write('{"type":"stdout","data":"a"}\n'); return setTimeout(() => res.destroy(), 30); }
  if (mode === 'error') return res.end(JSON.stringify({ type: 'error', data: SECRETS() }) + '\n');
  if (mode === 'extra') { res.write('\n{"type":"heartbeat"}\n\r\n'); }
  const child = start(box, body);
  child.stdout.setEncoding('utf8').on('data', (data) => send({ type: 'stdout', data }));
  child.stderr.setEncoding('utf8').on('data', (data) => send({ type: 'stderr', data }));
  return child.on('close', (code, signal) => {
    if (mode === 'drip') res.end(JSON.stringify({ type: 'exit', exitCode: code ?? 137 }));
    else { send({ type: 'exit', exitCode: code ?? 128 + (signal === 'SIGKILL' ? 9 : 15) }); res.end(); }
  });
}

function commandOf(command) {
  return {
    id: command.id, status: command.status, exit_code: command.code, signal: null, started_at: command.at, finished_at: null,
    heartbeat_status: 'healthy', last_heartbeat_at: null, last_heartbeat_error: null, heartbeat_failure_count: 0,
  };
}

function startCommand(res, box, body) {
  const command = { id: `cmd_${state.commands.size + 1}`, status: 'running', code: null, at: new Date().toISOString() };
  command.child = start(box, body);
  command.child.stdout.resume();
  command.child.stderr.resume();
  command.child.on('close', (code) => {
    if (command.status === 'running') command.status = code === 0 ? 'completed' : 'failed';
    command.code = code;
  });
  state.commands.set(command.id, command);
  return json(res, 201, commandOf(command));
}

function hostPath(box, inside) {
  const clean = path.posix.normalize(inside);
  for (const top of ['workspace', 'tmp']) {
    if (clean === `/${top}` || clean.startsWith(`/${top}/`)) return path.join(box.dir, clean);
  }
  return null;
}

function readFile(res, box, query) {
  const file = hostPath(box, query.get('path') ?? '');
  if (!file || !fs.existsSync(file) || !fs.statSync(file).isFile()) return json(res, 404, { error: SECRETS() });
  const content = fs.readFileSync(file, 'utf8');
  if (behaviour.raw) { res.writeHead(200, { 'Content-Type': 'text/plain; charset=utf-8' }); return res.end(content); }
  return json(res, 200, { path: query.get('path'), content });
}

function writeFiles(res, box, body) {
  for (const { path: name, content } of body.files) {
    const file = hostPath(box, name);
    if (!file) return json(res, 400, { error: 'outside the workspace' });
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, content);
  }
  return json(res, 200, { ok: true });
}

// What runs in a sandbox, by the mark in its environment: bubblewrap's own end leaves it.
function sweep(box) {
  for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (fs.readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`VF_BOX=${box.id}`)) process.kill(Number(pid), 'SIGKILL');
    } catch { /* gone, or somebody else's */ }
  }
}

function endSession(res, box) {
  sweep(box);
  state.sandboxes.delete(box.id);
  state.order = state.order.filter((id) => id !== box.id);
  return json(res, 200, { ok: true });
}

function rest(req, res, url, body) {
  const [, , id, ...tail] = url.pathname.split('/');
  if (!id) return req.method === 'POST' ? createSession(res, body) : listSessions(res, url.searchParams);
  const box = state.sandboxes.get(id);
  if (!box) return json(res, 404, { error: 'Not Found', message: SECRETS() });
  const route = `${req.method} ${tail.join('/')}`;
  const cancel = /^POST commands\/([\w]+)\/cancel$/.exec(route);
  if (cancel) { state.commands.get(cancel[1])?.child.kill('SIGKILL'); return json(res, 200, commandOf(state.commands.get(cancel[1]))); }
  switch (route) {
    case 'GET ': return getSession(res, box);
    case 'DELETE ': return endSession(res, box);
    case 'POST heartbeat': box.heartbeats += 1; return json(res, 200, { ok: true });
    case 'POST commands/stream': return stream(res, box, body);
    case 'POST commands': return startCommand(res, box, body);
    case 'GET commands': return json(res, 200, { commands: [] });
    case 'GET file': return readFile(res, box, url.searchParams);
    case 'POST files': return writeFiles(res, box, body);
    default: return json(res, 404, { error: 'Not Found' });
  }
}

// ---- the server ----

function control(req, res, body) {
  if (req.method === 'GET') {
    const boxes = [...state.sandboxes.values()].map(({ id, heartbeats, status }) => ({ id, heartbeats: heartbeats ?? 0, status }));
    const running = boxes.reduce((sum, { id }) => sum + (state.sandboxes.get(id).children?.size ?? 0), 0);
    return json(res, 200, { requests: state.requests, sandboxes: boxes, running });
  }
  if (body.expire) state.transports.clear();
  if (body.reset) {
    state.requests = [];
    Object.assign(behaviour, {
      sse: false, session: false, generation: 'new', answer: 'strict', page: 0, pending: 0, link: false, faults: [], chatter: false,
      exec: undefined, raw: false, outcome: undefined, pageSize: undefined,
    });
  }
  Object.assign(behaviour, body);
  return json(res, 200, {});
}

// A fault for requests of a path (and, at /mcp, of a JSON-RPC method), the first `times` of them.
function faultOf(req, url, body) {
  const fault = behaviour.faults.find((one) => one.times !== 0 && new RegExp(one.path).test(url.pathname)
    && (!one.http || one.http === req.method) && (!one.method || one.method === body?.method));
  if (fault && fault.times > 0) fault.times -= 1;
  return fault;
}

function fail(req, res, fault) {
  if (fault.hang) return undefined;
  if (fault.reset) return req.socket.destroy();
  res.writeHead(fault.status, { 'Content-Type': fault.type ?? 'text/plain', ...fault.headers });
  return res.end(fault.body ?? SECRETS());
}

async function handle(req, res) {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  let body;
  try { body = text === '' ? undefined : JSON.parse(text); } catch { body = undefined; }
  const url = new URL(req.url, 'http://localhost');
  if (url.pathname === '/control') return control(req, res, body);
  const { authorization, ...headers } = req.headers;
  state.requests.push({ method: req.method, path: req.url, headers, body, authorized: authorization === `Bearer ${KEY}` });
  const fault = faultOf(req, url, body);
  if (fault) return fail(req, res, fault);
  if (authorization !== `Bearer ${KEY}`) return json(res, 401, { error: 'unauthorized', message: SECRETS() });
  if (/^(\/projects\/[\w-]+)?\/mcp$/.test(url.pathname)) return mcp(req, res, body);
  if (url.pathname.startsWith('/sandbox-sessions')) return rest(req, res, url, body);
  return json(res, 404, { error: 'Not Found' });
}

const server = http.createServer((req, res) => {
  handle(req, res).catch((error) => {
    process.stderr.write(`${error.stack}\n`);
    if (!res.headersSent) res.writeHead(500);
    res.end();
  });
});

function end() {
  for (const box of state.sandboxes.values()) sweep(box);
  fs.rmSync(state.root, { recursive: true, force: true });
  process.exit(0);
}
process.on('SIGTERM', end);
setTimeout(end, LIFE_MS);
server.listen(0, '127.0.0.1', () => process.stdout.write(`${server.address().port} ${process.pid}\n`));

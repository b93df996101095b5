// server.mjs - a stand-in of E2B's cloud: control plane, data plane on the official Connect runtime, code interpreter. What
// runs in its sandboxes is real. It records every request, and answers wrongly where it is told to (faults.mjs).
//
// One listener serves all: a request that names a sandbox, by the headers E2b-Sandbox-Id and -Port, by its host
// (PORT-ID.domain) or by its path (/kruise/ID/PORT/…), is for the sandbox; every other one is for the control plane.
import { randomBytes } from 'node:crypto';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';

import { Control, Refusal } from './control.mjs';
import { handler as connect } from './envd.mjs';
import { apply, Faults } from './faults.mjs';
import * as files from './files.mjs';
import * as interpreter from './interpreter.mjs';
import { Recorder } from './recorder.mjs';

const ENVD_PORT = 49983;
const INTERPRETER_PORT = 49999;
const BODY_MAX_BYTES = 1 << 20;

const CONTROL_OPS = {
  'POST /': 'create',
  'GET /': 'list',
  'GET /ID': 'get',
  'DELETE /ID': 'kill',
  'POST /ID/timeout': 'set_timeout',
  'POST /ID/refreshes': 'refresh',
  'POST /ID/pause': 'pause',
  'POST /ID/connect': 'connect',
  'POST /ID/resume': 'resume',
  'GET /ID/metrics': 'metrics',
};

/** The name of what is asked for, for faults and records. */
function operation(method, path, target) {
  if (!target) {
    const [, , id, verb] = path.replace(/^\/v2/, '').split('/');
    return CONTROL_OPS[`${method} /${id ? 'ID' : ''}${verb ? `/${verb}` : ''}`] ?? `${method} ${path}`;
  }
  if (target.port === INTERPRETER_PORT) return path === '/execute' ? 'execute' : `interpreter ${method} ${path.split('/')[1]}`;
  if (path === '/files') return method === 'GET' ? 'read' : 'write';
  return path.replace(/^\/(process\.Process|filesystem\.Filesystem)\//, '').replace(/^\//, '');
}

/** Which sandbox and port a request is for, and the path there; null for the control plane. */
function targetOf(req, url) {
  const inPath = /^\/kruise\/([^/]+)\/(\d+)(\/.*)?$/.exec(url.pathname);
  if (inPath) return { id: inPath[1], port: Number(inPath[2]), path: inPath[3] ?? '/' };
  const host = (req.headers.host ?? req.headers[':authority'] ?? '').split(':')[0];
  const inHost = /^(\d+)-([a-z0-9]+)\./.exec(host);
  if (inHost) return { id: inHost[2], port: Number(inHost[1]), path: url.pathname };
  const id = req.headers['e2b-sandbox-id'];
  return id ? { id, port: Number(req.headers['e2b-sandbox-port'] ?? ENVD_PORT), path: url.pathname } : null;
}

async function bodyOf(req) {
  const chunks = [];
  let size = 0;
  for await (const chunk of req) {
    size += chunk.length;
    if (size > BODY_MAX_BYTES) throw new Refusal(413, 'body too large');
    chunks.push(chunk);
  }
  if (size === 0) return undefined;
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new Refusal(400, 'error parsing body');
  }
}

function answer(res, status, body, headers = {}) {
  const text = body === undefined ? '' : JSON.stringify(body);
  res.writeHead(status, {
    ...(body !== undefined && { 'content-type': 'application/json; charset=utf-8', 'content-length': Buffer.byteLength(text) }),
    ...headers,
  });
  res.end(text);
}

export class Server {
  /** Options: envdVersion, domain, maxSandboxes, keys (all that are taken), prefix (of every path), tls ({ key, cert }: a
   * second listener), proxy (a CONNECT proxy). */
  constructor(options = {}) {
    this.options = options;
    this.keys = options.keys ?? [`e2b_${randomBytes(20).toString('hex')}`];
    this.recorder = new Recorder();
    this.faults = new Faults();
    this.control = new Control(options);
    this.connected = [];
    this.sockets = new Set();
  }

  get key() {
    return this.keys[0];
  }

  async open() {
    const serve = (req, res) => this.#serve(req, res);
    this.plain = http.createServer({ keepAliveTimeout: 30_000 }, serve);
    this.port = await this.#listen(this.plain);
    this.url = `http://127.0.0.1:${this.port}${this.options.prefix ?? ''}`;
    if (this.options.tls) {
      this.secure = http2.createSecureServer({ ...this.options.tls, allowHTTP1: true }, serve);
      this.securePort = await this.#listen(this.secure);
    }
    if (this.options.proxy) {
      this.proxy = http.createServer((req, res) => answer(res, 405)).on('connect', (...args) => this.#tunnel(...args));
      this.proxyPort = await this.#listen(this.proxy);
      this.proxyUrl = `http://127.0.0.1:${this.proxyPort}`;
    }
    return this;
  }

  #listen(server) {
    server.on('connection', (socket) => {
      this.sockets.add(socket);
      socket.once('close', () => this.sockets.delete(socket));
      socket.on('error', () => {});
    });
    server.on('sessionError', () => {});
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(0, '127.0.0.1', () => resolve(server.address().port));
    });
  }

  // Whatever name it asks for is here.
  #tunnel(req, socket, head) {
    this.connected.push({ target: req.url, headers: { ...req.headers } });
    const there = net.connect(this.securePort, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      there.write(head);
      there.pipe(socket).pipe(there);
    });
    for (const one of [there, socket])
      one.on('error', () => {
        there.destroy();
        socket.destroy();
      });
  }

  async close() {
    await Promise.all([...this.control.sandboxes.values()].map((sandbox) => this.control.remove(sandbox)));
    for (const server of [this.plain, this.secure, this.proxy]) server?.close();
    for (const socket of this.sockets) socket.destroy();
  }

  /** Ids of sandboxes that are there. */
  get ids() {
    return [...this.control.sandboxes.keys()];
  }

  async #serve(req, res) {
    const { prefix } = this.options;
    if (prefix && req.url.startsWith(`${prefix}/`)) req.url = req.url.slice(prefix.length);
    const url = new URL(req.url, 'http://localhost');
    const target = targetOf(req, url);
    const path = target?.path ?? url.pathname.replace(/^\/kruise\/api/, '');
    const op = operation(req.method, path, target);
    const record = this.recorder.begin(req, url, op);
    record.target = target;
    record.socket = req.socket;
    res.once('close', () => {
      record.status = res.statusCode;
      record.isWhole = res.writableFinished;
    });
    try {
      const fault = this.faults.take(op);
      const doReal = () => this.#control(req, path, url, record);
      if (fault && !(await apply(fault, req, res, doReal))) return;
      if (target) await this.#sandbox(req, res, url, target);
      else await this.#answerControl(req, res, path, url, record);
    } catch (error) {
      if (!(error instanceof Refusal)) console.error(error); // eslint-disable-line no-console
      if (res.headersSent) res.destroy();
      else answer(res, error.status ?? 500, error.body ?? { code: 500, message: 'internal' }, error.headers);
    }
  }

  async #control(req, path, url, record) {
    const body = await bodyOf(req);
    record.json = body;
    return this.control.handle(req.method, path, url.searchParams, body);
  }

  async #answerControl(req, res, path, url, record) {
    if (!this.keys.includes(req.headers['x-api-key'])) {
      throw new Refusal(401, 'authentication failed: an invalid API key was given');
    }
    answer(res, ...(await this.#control(req, path, url, record)));
  }

  /** The running sandbox of a data-plane request. Throws what E2B's proxy says. */
  async #awake(target) {
    const { id: sandboxId, port } = target;
    const sandbox = this.control.sandboxes.get(sandboxId);
    if (sandbox?.state === 'paused' && sandbox.autoResume) await this.control.wake(sandbox, 300);
    if (!sandbox || sandbox.state !== 'running') {
      const refusal = new Refusal(502, 'The sandbox was not found');
      refusal.body = { sandboxId, message: refusal.message, code: 502 };
      throw refusal;
    }
    if (port !== ENVD_PORT && !(port === INTERPRETER_PORT && sandbox.templateID === 'code-interpreter-v1')) {
      const refusal = new Refusal(502, 'The sandbox is running but port is not open');
      refusal.body = { sandboxId, message: refusal.message, port, code: 502 };
      throw refusal;
    }
    return sandbox;
  }

  async #sandbox(req, res, url, target) {
    const sandbox = await this.#awake(target);
    if (target.path === '/health' && target.port === ENVD_PORT) {
      answer(res, 204);
      return;
    }
    const isAllowed =
      !sandbox.token ||
      req.headers['x-access-token'] === sandbox.token ||
      (target.path === '/files' && files.isSigned(sandbox, url.searchParams, req.method));
    if (target.port === INTERPRETER_PORT) {
      await this.#interpreter(req, res, new URL(target.path + url.search, url), sandbox, isAllowed);
      return;
    }
    if (!isAllowed) {
      throw new Refusal(401, 'unauthorized access, please provide a valid access token or method signing if supported');
    }
    req.sandbox = sandbox;
    if (target.path !== '/files') {
      req.url = target.path + url.search;
      connect(req, res);
    } else if (req.method === 'GET') {
      await files.read(sandbox, req, res, url.searchParams);
    } else if (req.method === 'POST') {
      answer(res, ...(await files.write(sandbox, req, url.searchParams)));
    } else {
      throw new Refusal(405, 'method not allowed');
    }
  }

  // The SDK sends the token to /execute alone.
  async #interpreter(req, res, url, sandbox, isAllowed) {
    if (url.pathname === '/execute' && !isAllowed) throw new Refusal(401, 'unauthorized access');
    const body = req.method === 'POST' ? ((await bodyOf(req)) ?? {}) : {};
    const made = await interpreter.handle(sandbox, req, url, body, res);
    if (!made) return;
    res.writeHead(made.status, made.type ? { 'content-type': made.type } : {});
    res.end(made.body);
  }
}

/** A server that listens. */
export function start(options) {
  return new Server(options).open();
}

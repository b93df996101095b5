// control.mjs - E2B's control plane, as far as its public description goes: what sandboxes there are, for how long.
import { randomBytes } from 'node:crypto';

import { Sandbox } from './sandbox.mjs';

const TEMPLATES = ['base', 'code-interpreter-v1'];
const TIMEOUT_MAX_S = 86_400;
const PAGE_MAX = 100;
const ID = /^[a-z0-9]{1,40}$/;

/** Thrown by a handler: a status and E2B's body for it. */
export class Refusal extends Error {
  constructor(status, message, headers = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
    this.body = { code: status, message };
  }
}

/** Go's url.QueryUnescape. */
function unescape(text) {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new Refusal(400, 'invalid escape');
  }
}

// Decoded as query value (by URLSearchParams), then as a whole, then each key and value.
function metadataFilter(value) {
  return unescape(value)
    .split('&')
    .map((pair) => pair.split('=').map(unescape));
}

export class Control {
  sandboxes = new Map();
  everCreated = [];

  constructor(options) {
    this.options = options;
  }

  /** The sandbox, running or paused. Throws 404. */
  find(id) {
    const sandbox = this.sandboxes.get(id);
    if (!sandbox) throw new Refusal(404, `sandbox "${id}" doesn't exist or you don't have access to it`);
    return sandbox;
  }

  #arm(sandbox) {
    clearTimeout(sandbox.timer);
    sandbox.timer = setTimeout(() => this.#expire(sandbox), Math.max(0, sandbox.endAt - Date.now()));
    sandbox.timer.unref();
  }

  async #expire(sandbox) {
    if (sandbox.autoPause) await this.#pause(sandbox);
    else await this.remove(sandbox);
  }

  async remove(sandbox) {
    this.sandboxes.delete(sandbox.sandboxID);
    await sandbox.end();
  }

  async #pause(sandbox) {
    clearTimeout(sandbox.timer);
    sandbox.state = 'paused';
    await sandbox.setFrozen(true);
  }

  /** Brings it back. */
  async wake(sandbox, seconds) {
    await sandbox.setFrozen(false);
    sandbox.state = 'running';
    sandbox.endAt = Date.now() + seconds * 1000;
    this.#arm(sandbox);
  }

  #seconds(value, fallback) {
    if (value === undefined && fallback !== undefined) return fallback;
    if (!Number.isInteger(value) || value <= 0) throw new Refusal(400, 'Timeout must be greater than 0');
    if (value > TIMEOUT_MAX_S) throw new Refusal(400, 'Timeout cannot be greater than 24 hours');
    return value;
  }

  brief(sandbox) {
    const { templateID, sandboxID, alias, envdVersion, token } = sandbox;
    return {
      templateID: `tmpl_${templateID}`,
      sandboxID,
      clientID: 'cl1',
      alias,
      envdVersion,
      envdAccessToken: token ?? undefined,
      trafficAccessToken: null,
      domain: this.options.domain ?? null,
    };
  }

  listed(sandbox) {
    return {
      templateID: `tmpl_${sandbox.templateID}`,
      alias: sandbox.alias,
      sandboxID: sandbox.sandboxID,
      clientID: 'cl1',
      startedAt: new Date(sandbox.startedAt).toISOString(),
      endAt: new Date(sandbox.endAt).toISOString(),
      cpuCount: 2,
      memoryMB: 512,
      diskSizeMB: 1024,
      metadata: sandbox.metadata,
      state: sandbox.state,
      envdVersion: sandbox.envdVersion,
    };
  }

  create(body, isV2) {
    if (typeof body?.templateID !== 'string') throw new Refusal(400, 'templateID is required');
    if (!TEMPLATES.includes(body.templateID)) throw new Refusal(404, `template '${body.templateID}' not found`);
    if (this.sandboxes.size >= (this.options.maxSandboxes ?? 500)) {
      throw new Refusal(429, 'you have reached the maximum number of concurrent E2B sandboxes');
    }
    const seconds = this.#seconds(body.timeout, isV2 ? 300 : 15);
    const now = Date.now();
    const sandbox = new Sandbox({
      sandboxID: `i${randomBytes(9).toString('hex')}`,
      templateID: body.templateID,
      alias: body.templateID,
      metadata: body.metadata,
      envVars: body.envVars,
      autoPause: body.autoPause === true,
      autoResume: body.autoResume?.enabled === true,
      secure: isV2 || body.secure === true,
      startedAt: now,
      endAt: now + seconds * 1000,
      body,
      envdVersion: this.options.envdVersion ?? '0.6.5',
    });
    this.sandboxes.set(sandbox.sandboxID, sandbox);
    this.everCreated.push(sandbox.sandboxID);
    this.#arm(sandbox);
    return [201, this.brief(sandbox)];
  }

  list(query) {
    const limit = Number(query.get('limit') ?? PAGE_MAX);
    if (!Number.isInteger(limit) || limit < 1 || limit > PAGE_MAX) throw new Refusal(400, 'invalid limit');
    const states = (query.get('state') ?? 'running,paused').split(',');
    const wanted = query.get('metadata') ? metadataFilter(query.get('metadata')) : [];
    let found = [...this.sandboxes.values()]
      .filter((one) => states.includes(one.state) && wanted.every(([key, value]) => one.metadata?.[key] === value))
      .sort((a, b) => b.startedAt - a.startedAt || (a.sandboxID < b.sandboxID ? -1 : 1));
    const total = found.length;
    if (query.get('nextToken')) {
      const last = Buffer.from(query.get('nextToken'), 'base64url').toString();
      if (!/^i[a-z0-9]+$/.test(last)) throw new Refusal(400, 'Invalid next token');
      found = found.slice(found.findIndex((one) => one.sandboxID === last) + 1);
    }
    const page = found.slice(0, limit);
    const next = found.length > limit ? Buffer.from(page.at(-1).sandboxID).toString('base64url') : '';
    return [200, page.map((one) => this.listed(one)), { 'x-next-token': next, 'x-total-running': String(total) }];
  }

  async connect(id, body, isV2) {
    const sandbox = this.find(id);
    const seconds = this.#seconds(body?.timeout, isV2 ? 300 : undefined);
    if (sandbox.state === 'paused') {
      await this.wake(sandbox, seconds);
      return [201, this.brief(sandbox)];
    }
    sandbox.endAt = Math.max(sandbox.endAt, Date.now() + seconds * 1000);
    this.#arm(sandbox);
    return [200, this.brief(sandbox)];
  }

  async pause(id) {
    const sandbox = this.find(id);
    if (sandbox.state === 'paused') throw new Refusal(409, `Error pausing sandbox - sandbox '${id}' is already paused`);
    await this.#pause(sandbox);
    return [204];
  }

  setEnd(id, at, onlyExtends) {
    const sandbox = this.find(id);
    if (sandbox.state === 'paused') throw new Refusal(404, `sandbox "${id}" is not running`);
    sandbox.endAt = onlyExtends ? Math.max(sandbox.endAt, at) : at;
    this.#arm(sandbox);
    return [204];
  }

  metrics(id) {
    this.find(id);
    const now = Date.now();
    return [
      200,
      [
        {
          timestamp: new Date(now).toISOString(),
          timestampUnix: Math.floor(now / 1000),
          cpuCount: 2,
          cpuUsedPct: 1.5,
          memUsed: 1e6,
          memTotal: 5e8,
          memCache: 1e5,
          diskUsed: 1e6,
          diskTotal: 1e9,
        },
      ],
    ];
  }

  async kill(id) {
    await this.remove(this.find(id));
    return [204];
  }

  /** Answers a request: [status, body?, headers?]. Throws Refusal. */
  handle(method, path, query, body) {
    const isV2 = path.startsWith('/v2/');
    const [, first, id, verb, rest] = path.replace(/^\/v2/, '').split('/');
    if (first !== 'sandboxes' || rest !== undefined) throw new Refusal(404, 'no matching operation was found');
    if (id !== undefined && !ID.test(id)) throw new Refusal(id.length < 60 ? 404 : 400, 'Invalid sandbox ID');
    const routes = {
      'POST /sandboxes': () => this.create(body, isV2),
      'GET /sandboxes': () => this.list(query),
      'GET /sandboxes/ID': () => [200, { ...this.listed(this.find(id)), ...this.brief(this.find(id)) }],
      'DELETE /sandboxes/ID': () => this.kill(id),
      'POST /sandboxes/ID/timeout': () => this.setEnd(id, Date.now() + this.#seconds(body?.timeout) * 1000, false),
      'POST /sandboxes/ID/refreshes': () => this.setEnd(id, Date.now() + Number(body?.duration ?? 0) * 1000, true),
      'POST /sandboxes/ID/pause': () => this.pause(id),
      'POST /sandboxes/ID/connect': () => this.connect(id, body, isV2),
      'POST /sandboxes/ID/resume': () => this.connect(id, { timeout: 15, ...body }, isV2),
      'GET /sandboxes/ID/metrics': () => this.metrics(id),
    };
    const route = routes[`${method} /sandboxes${id === undefined ? '' : '/ID'}${verb === undefined ? '' : `/${verb}`}`];
    if (!route) throw new Refusal(405, 'method not allowed');
    return route();
  }
}

// raw.mjs - a client without a library: lines over pipes, every message of the server kept as it came.
import { spawn } from 'node:child_process';
import readline from 'node:readline';

import { within } from './cases.mjs';

export class RawClient {
  #child;
  #waiting = new Map();
  #nextId = 1;
  #meta = null;
  /** { message, line, method, tool }: method and tool are those of the request it answers, or null. */
  received = [];
  stderr = '';
  answerTimeoutMs = 20_000;

  constructor({ command, args, env }, revision) {
    this.revision = revision;
    if (revision >= '2026') {
      this.#meta = {
        'io.modelcontextprotocol/protocolVersion': revision,
        'io.modelcontextprotocol/clientInfo': { name: 'demilune-peer', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {},
      };
    }
    this.#child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child.stderr.setEncoding('utf8').on('data', (text) => { this.stderr += text; });
    readline.createInterface({ input: this.#child.stdout, crlfDelay: Infinity }).on('line', (line) => this.#take(line));
    this.closed = new Promise((resolve) => { this.#child.on('close', (code, signal) => resolve({ code, signal })); });
    this.closed.then(() => { for (const { reject } of this.#waiting.values()) reject(new Error(`the server ended: ${this.stderr}`)); });
    this.#child.stdin.on('error', () => {});
  }

  get pid() { return this.#child.pid; }

  #take(line) {
    let message = null;
    try {
      message = JSON.parse(line);
    } catch {
      // Kept as it is; the schema check reports it.
    }
    const waiting = message === null ? undefined : this.#waiting.get(message.id);
    this.received.push({ message, line, method: waiting?.method ?? null, tool: waiting?.tool ?? null });
    if (waiting) {
      this.#waiting.delete(message.id);
      waiting.resolve(message);
    }
  }

  /** Sends a line as it is. */
  sendLine(line) { this.#child.stdin.write(`${line}\n`); }

  /** Sends a request; resolves with the whole answer, an error too. */
  request(method, params, { id = this.#nextId++, meta = {} } = {}) {
    const _meta = { ...this.#meta, ...meta };
    const whole = Object.keys(_meta).length > 0 ? { ...params, _meta } : params;
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, method, tool: params?.name }));
    this.sendLine(JSON.stringify({ jsonrpc: '2.0', id, method, ...(whole && { params: whole }) }));
    return within(this.answerTimeoutMs, answer, `${method} ${params?.name ?? ''}`);
  }

  notify(method, params) {
    const whole = this.#meta ? { ...params, _meta: this.#meta } : params;
    this.sendLine(JSON.stringify({ jsonrpc: '2.0', method, ...(whole && { params: whole }) }));
  }

  /** The handshake of the revision, or server/discover where there is none. */
  async open() {
    if (this.#meta) return this.request('server/discover', {});
    const answer = await this.request('initialize', {
      protocolVersion: this.revision, capabilities: {}, clientInfo: { name: 'demilune-peer', version: '1' },
    });
    this.notify('notifications/initialized');
    return answer;
  }

  call(name, args, options) { return this.request('tools/call', { name, arguments: args }, options); }

  /** Ends its stdin; resolves with { code, signal }. */
  end() {
    this.#child.stdin.end();
    return this.closed;
  }

  kill() { this.#child.kill('SIGKILL'); }
}

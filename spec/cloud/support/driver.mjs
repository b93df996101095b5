// driver.mjs - the real program with a provider of type e2b, driven as a client drives it.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

import { within } from '../../peers/support/cases.mjs';
import { RawClient } from '../../peers/support/raw.mjs';
import { makeHome, parameters, processesOf, program, removeHome } from '../../peers/support/server.mjs';

const KEY_VARIABLE = 'SPEC_CLOUD_KEY';

/** A value as Lua text. */
export function lua(value) {
  if (Array.isArray(value)) return `{${value.map(lua).join(', ')}}`;
  if (value && typeof value === 'object') {
    return `{${Object.entries(value)
      .filter(([, one]) => one !== undefined)
      .map(([key, one]) => `[${JSON.stringify(key)}] = ${lua(one)}`)
      .join(', ')}}`;
  }
  return JSON.stringify(value);
}

/** One home of the program, with a configuration: provider `cloud` of type e2b at a server's address. */
export class Home {
  /** Options: provider (fields over the usual ones), config (fields beside), source (of the key), env. */
  constructor(server, options = {}) {
    this.path = makeHome();
    /** Pids of what run() started. */
    this.started = new Set();
    this.server = server;
    this.env = { [KEY_VARIABLE]: options.key ?? server?.key, ...options.env };
    const config = {
      default_provider: 'cloud',
      providers: [
        {
          id: 'cloud',
          type: 'e2b',
          api_url: server?.url,
          sandbox_url: server?.url,
          credential: 'e2b',
          lifetime: 300,
          templates: ['base', 'code-interpreter-v1'],
          ...options.provider,
        },
      ],
      credentials: { e2b: { source: options.source ?? `env:${KEY_VARIABLE}` } },
      ...options.config,
    };
    this.file = path.join(this.path, 'demilune.lua');
    fs.writeFileSync(this.file, `return ${lua(config)}\n`);
  }

  parameters(args) {
    const made = parameters(this.path, [...args, '--config', this.file]);
    return { ...made, env: { ...made.env, ...this.env } };
  }

  /** Starts `demilune serve` here and says hello. */
  async serve() {
    const client = new Serve(this.parameters(['serve']), '2025-11-25');
    await client.open();
    return client;
  }

  /** `demilune call TOOL JSON --json`: { code, stdout, stderr, result }. */
  call(tool, args, ms = 20_000) {
    return this.run(['call', tool, JSON.stringify(args), '--json'], ms);
  }

  /** Runs any command to its end. */
  run(args, ms = 20_000) {
    const { command, args: words, env } = this.parameters(args);
    const child = spawn(command, words, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.pid = child.pid;
    this.started.add(child.pid);
    const out = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'])
      child[name].setEncoding('utf8').on('data', (text) => {
        out[name] += text;
      });
    const closed = new Promise((resolve) => {
      child.on('close', (code, signal) => resolve({ ...out, code, signal }));
    });
    return within(ms, closed, `demilune ${args.join(' ')}`).catch((error) => {
      child.kill('SIGKILL');
      throw error;
    });
  }

  /** Removes it; what of it still lives is returned. What looks for lost sandboxes may take 30 s, and is ended here. */
  async remove() {
    removeHome(this.path);
    for (let i = 0; i < 50 && processesOf(this.path).length > 0; i += 1) await new Promise((done) => setTimeout(done, 20));
    const left = processesOf(this.path);
    const reapers = left.filter((pid) => fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[1] === 'reap');
    for (const pid of reapers) process.kill(pid, 'SIGKILL');
    return left.filter((pid) => !reapers.includes(pid));
  }
}

export class Serve extends RawClient {
  /** Calls a tool: its structured content, or throws what it failed with as a Failure. */
  async must(tool, args = {}) {
    const { content, error } = await this.try(tool, args);
    if (error) throw new Error(`${tool}: ${JSON.stringify(error)}`);
    return content;
  }

  /** Calls a tool: { content } or { error, text }, and how long it took. */
  async try(tool, args = {}) {
    const start = performance.now();
    const answer = await this.call(tool, args);
    const took = performance.now() - start;
    if (answer.error) throw new Error(`${tool}: JSON-RPC ${JSON.stringify(answer.error)}`);
    const { result } = answer;
    if (!result.isError) return { content: result.structuredContent, took };
    return { error: JSON.parse(result.content[0].text).error, text: JSON.stringify(result), took };
  }

  /** Closes it as clients do; resolves with { code, signal }. */
  async stop(ms = 10_000) {
    return within(ms, this.end(), 'the end of the server').catch((error) => {
      this.kill();
      throw error;
    });
  }
}

export { program };

// sandbox.mjs - one real sandbox of the stand-in: a bubblewrap with a home, a /tmp and a pid namespace of its own, no
// network, and agent.py in it. Starts at the first use of the data plane.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const PASSWD = 'root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n';
const GROUP = 'root:x:0:\nuser:x:1000:\n';

/** What the agent answered with an error. */
export class AgentFault extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** An endless list that one reader takes from: `for await (const item of queue)`, until it is closed. */
export class Queue {
  items = [];
  isClosed = false;
  #wake = () => {};

  push(item) {
    this.items.push(item);
    this.#wake();
  }

  close() {
    this.isClosed = true;
    this.#wake();
  }

  /** The next item, undefined at the end; null when `signal` aborted or `ms` passed. */
  async next(signal, ms) {
    const deadline = ms === undefined ? Infinity : Date.now() + ms;
    while (this.items.length === 0 && !this.isClosed) {
      if (signal?.aborted || Date.now() >= deadline) return null;
      await this.#changed(signal, deadline);
    }
    return this.items.shift();
  }

  async #changed(signal, deadline) {
    let timer;
    await new Promise((resolve) => {
      this.#wake = resolve;
      signal?.addEventListener('abort', resolve, { once: true });
      if (deadline !== Infinity) timer = setTimeout(resolve, deadline - Date.now());
    });
    clearTimeout(timer);
    signal?.removeEventListener('abort', this.#wake);
  }
}

function bwrapArguments(folder) {
  const binds = ['bin', 'sbin', 'lib', 'lib64', 'lib32'].filter((name) => fs.existsSync(`/${name}`));
  const seeable = ['/etc/alternatives', '/etc/profile', '/etc/ld.so.cache'].filter((name) => fs.existsSync(name));
  return [
    '--unshare-all',
    '--unshare-user',
    '--uid',
    '1000',
    '--gid',
    '1000',
    '--hostname',
    'sandbox',
    '--die-with-parent',
    '--new-session',
    '--clearenv',
    '--ro-bind',
    '/usr',
    '/usr',
    ...binds.flatMap((name) => ['--symlink', `usr/${name}`, `/${name}`]),
    ...seeable.flatMap((name) => ['--ro-bind', name, name]),
    '--ro-bind',
    path.join(folder, 'passwd'),
    '/etc/passwd',
    '--ro-bind',
    path.join(folder, 'group'),
    '/etc/group',
    '--proc',
    '/proc',
    '--dev',
    '/dev',
    '--dir',
    '/srv',
    '--dir',
    '/run',
    '--dir',
    '/var/tmp',
    '--bind',
    path.join(folder, 'home'),
    '/home/user',
    '--bind',
    path.join(folder, 'root'),
    '/root',
    '--bind',
    path.join(folder, 'tmp'),
    '/tmp',
    '--ro-bind',
    path.join(here, 'agent.py'),
    '/run/agent.py',
    '--ro-bind',
    path.join(here, 'kernel.py'),
    '/run/kernel.py',
    '--chdir',
    '/home/user',
    '/usr/bin/python3',
    '-ESu',
    '/run/agent.py',
  ];
}

export class Sandbox {
  /** `fields` are those of the control plane. */
  constructor(fields) {
    Object.assign(this, fields);
    // With signs that URLs and base64 write otherwise.
    this.token = this.secure ? `tok/${randomBytes(24).toString('hex')}+` : null;
    this.state = 'running';
    this.streams = new Map();
    this.watches = new Map();
    this.watchers = new Map();
    this.contexts = new Map();
    this.waiting = new Map();
    this.count = 0;
  }

  #open() {
    if (this.child) return;
    this.folder = fs.mkdtempSync(path.join(process.env.DML_SPEC_TMP ?? os.tmpdir(), 'e2b-'));
    for (const name of ['home', 'root', 'tmp']) fs.mkdirSync(path.join(this.folder, name));
    fs.writeFileSync(path.join(this.folder, 'passwd'), PASSWD);
    fs.writeFileSync(path.join(this.folder, 'group'), GROUP);
    this.child = spawn('bwrap', bwrapArguments(this.folder), {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { PATH: '/usr/bin:/bin' },
    });
    this.child.stdin.on('error', () => {});
    this.child.on('error', (error) => this.#fail(error.message));
    this.child.on('close', () => this.#fail('the sandbox ended'));
    createInterface({ input: this.child.stdout }).on('line', (line) => this.#take(JSON.parse(line)));
  }

  #fail(message) {
    for (const { reject } of this.waiting.values()) reject(new AgentFault('unavailable', message));
    for (const queues of this.streams.values()) for (const queue of queues) queue.close();
    for (const queue of this.watches.values()) queue.close();
    this.waiting.clear();
  }

  #take(message) {
    if (message.id !== undefined) {
      const waiting = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (message.err) waiting?.reject(new AgentFault(message.err, message.message));
      else waiting?.resolve(message.ok);
    } else if (message.watch !== undefined) {
      this.watches.get(message.watch)?.push(message);
    } else {
      this.#deliver(message);
    }
  }

  // The first reader of a process is the one whose pace counts; where there is none, output is dropped.
  #deliver(message) {
    const queues = this.streams.get(message.pid) ?? [];
    queues.forEach((queue, i) => queue.push({ ...message, isPaced: i === 0 && message.ev !== 'end' }));
    if (message.ev === 'end') {
      for (const queue of queues) queue.close();
      this.streams.delete(message.pid);
    } else if (queues.length === 0) {
      this.credit(message.pid);
    }
  }

  credit(pid) {
    this.call('credit', { pid }).catch(() => {});
  }

  /** Asks the agent. Rejects with an AgentFault. */
  call(op, fields = {}) {
    this.#open();
    this.count += 1;
    const id = this.count;
    return new Promise((resolve, reject) => {
      if (this.child.exitCode !== null || this.isEnded) {
        reject(new AgentFault('unavailable', 'the sandbox ended'));
        return;
      }
      this.waiting.set(id, { resolve, reject });
      this.child.stdin.write(`${JSON.stringify({ id, op, ...fields })}\n`);
    });
  }

  /** Starts a process; its pid and a queue of its events. */
  async start(fields) {
    const { pid } = await this.call('start', { envs: this.envVars ?? {}, user: 'user', ...fields });
    const queue = this.attach(pid);
    await this.call('follow', { pid });
    return { pid, queue };
  }

  attach(pid) {
    const queue = new Queue();
    this.streams.set(pid, [...(this.streams.get(pid) ?? []), queue]);
    return queue;
  }

  detach(pid, queue) {
    const left = (this.streams.get(pid) ?? []).filter((other) => other !== queue);
    if (this.streams.has(pid)) this.streams.set(pid, left);
    for (const item of queue.items) if (item.isPaced) this.credit(pid);
    queue.items = [];
  }

  /** Ends a process at its deadline. Pids are not used again so soon. */
  killIfThere(pid) {
    if (!this.isEnded) this.call('signal', { process: { pid }, signal: 9 }).catch(() => {});
  }

  /** Watches a folder; a queue of events, the first of type START. */
  async watch(fields) {
    const id = this.count + 1;
    const queue = new Queue();
    this.watches.set(id, queue);
    try {
      await this.call('watch', fields);
    } catch (error) {
      this.watches.delete(id);
      throw error;
    }
    return { id, queue };
  }

  unwatch(id) {
    this.watches.delete(id);
    return this.call('unwatch', { watch: id }).catch(() => {});
  }

  setFrozen(isFrozen) {
    return this.child ? this.call('freeze', { is_frozen: isFrozen }) : null;
  }

  /** Ends it with all that runs in it, and removes its folder. */
  end() {
    this.isEnded = true;
    clearTimeout(this.timer);
    if (!this.child) return Promise.resolve();
    this.ending ??= new Promise((resolve) => {
      const clear = () => {
        fs.rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
        resolve();
      };
      if (this.child.exitCode !== null || this.child.signalCode !== null) clear();
      else this.child.once('exit', clear);
      this.child.kill('SIGKILL');
    });
    return this.ending;
  }
}

// interpreter.mjs - the code interpreter of the stand-in, port 49999: contexts are Python processes that keep their state
// (kernel.py). Python is the only language here.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';

const KEEPALIVE_MS = 5000;
const SIGINT = 2;
const SIGKILL = 9;

class Context {
  constructor(sandbox, cwd) {
    this.sandbox = sandbox;
    this.id = randomUUID();
    this.language = 'python';
    this.cwd = cwd ?? '/home/user';
    this.turn = Promise.resolve();
  }

  async open() {
    if (this.process) return;
    this.process = await this.sandbox.start({
      config: { cmd: '/usr/bin/python3', args: ['-u', '/run/kernel.py'], envs: {}, cwd: this.cwd },
      stdin: true,
    });
    this.rest = '';
  }

  signal(signal) {
    if (!this.process) return Promise.resolve();
    return this.sandbox.call('signal', { process: { pid: this.process.pid }, signal }).catch(() => {});
  }

  async close() {
    await this.signal(SIGKILL);
    this.process = null;
  }

  /** Lines of one execution, null when nothing came for a while. */
  async *execute(request, signal) {
    await this.open();
    const data = Buffer.from(`${JSON.stringify(request)}\n`).toString('base64');
    await this.sandbox.call('input', { process: { pid: this.process.pid }, data });
    for (;;) {
      const item = await this.process.queue.next(signal, KEEPALIVE_MS);
      if (signal.aborted) {
        await this.#interrupt();
        return;
      }
      if (item === null) {
        yield null;
      } else if (item === undefined || item.ev === 'end') {
        this.process = null;
        yield JSON.stringify({
          type: 'error',
          name: 'UnexpectedEndOfExecution',
          value: 'Connection to the execution was closed',
          traceback: '',
        });
        return;
      } else {
        if (item.isPaced) this.sandbox.credit(this.process.pid);
        if (item.ev === 'stdout') {
          const lines = (this.rest + Buffer.from(item.data, 'base64')).split('\n');
          this.rest = lines.pop();
          yield* lines;
          if (lines.some((line) => line === '{"type": "end_of_execution"}')) return;
        }
      }
    }
  }

  // A client that goes away interrupts its execution; what it still says belongs to nobody.
  async #interrupt() {
    await this.signal(SIGINT);
    for (let seen = ''; !seen.includes('end_of_execution');) {
      const item = await this.process.queue.next(undefined, KEEPALIVE_MS);
      if (!item || item.ev === 'end') return this.close();
      if (item.isPaced) this.sandbox.credit(this.process.pid);
      seen += Buffer.from(item.data ?? '', 'base64');
    }
    this.rest = '';
    return undefined;
  }
}

function text(status, body) {
  return { status, type: 'text/plain; charset=utf-8', body };
}

function json(status, body) {
  return { status, type: 'application/json', body: JSON.stringify(body) };
}

const brief = ({ id, language, cwd }) => ({ id, language, cwd });

function isPython(language) {
  return language === undefined || language === null || language === 'python';
}

function contextFor(sandbox, body) {
  if (body.context_id) return sandbox.contexts.get(body.context_id);
  sandbox.default ??= new Context(sandbox);
  return sandbox.default;
}

async function execute(sandbox, body, res) {
  if (body.context_id && body.language) return text(400, 'Only one of context_id or language can be provided');
  if (!isPython(body.language)) return text(500, `No kernel for ${body.language}`);
  const context = contextFor(sandbox, body);
  if (!context) return text(404, `Context ${body.context_id} not found`);
  const gone = new AbortController();
  res.once('close', () => gone.abort());
  res.writeHead(200, { 'content-type': 'application/x-ndjson' });
  res.flushHeaders();
  const turn = context.turn.then(async () => {
    for await (const line of context.execute({ code: body.code, env_vars: body.env_vars }, gone.signal)) {
      if (!res.destroyed && !res.write(`${line ?? '{"type": "keepalive"}'}\n`))
        await once(res, 'drain', { signal: gone.signal });
    }
  });
  context.turn = turn.catch(() => {});
  await turn;
  res.end();
  return null;
}

/** Answers a request of port 49999: {status, type, body}, or null when it has written its answer. */
export async function handle(sandbox, req, url, body, res) {
  const [, first, id, verb] = url.pathname.split('/');
  const call = `${req.method} ${first}${id ? '/ID' : ''}${verb ? `/${verb}` : ''}`;
  if (call === 'GET health') return text(200, 'OK');
  if (call === 'POST execute') return execute(sandbox, body, res);
  if (call === 'GET contexts') return json(200, [...sandbox.contexts.values()].map(brief));
  if (call === 'POST contexts') {
    if (!isPython(body.language)) return text(500, `No kernel for ${body.language}`);
    const context = new Context(sandbox, body.cwd);
    sandbox.contexts.set(context.id, context);
    return json(200, brief(context));
  }
  const context = sandbox.contexts.get(id);
  if (!context) return text(404, `Context ${id} not found`);
  if (call === 'POST contexts/ID/restart' || call === 'DELETE contexts/ID') {
    await context.close();
    if (req.method === 'DELETE') sandbox.contexts.delete(id);
    return req.method === 'DELETE' ? { status: 204 } : text(200, '');
  }
  return text(404, 'not found');
}

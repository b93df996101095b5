// timeout: 120
// compare.mjs - what our driver sends, beside what the official SDK sends for the same operation in the same run: the same
// method and path, the same meaning of headers and body. What may differ stands in ALLOWED with its reason, and nothing that
// is allowed for an operation may go unused there.
//
// The partner for creations and connects is SDK 2.20.1, which uses the unversioned routes as our driver does; for the rest
// it is 2.51.0.
import { assert, finish, it } from '../peers/support/cases.mjs';
import { Home } from './support/driver.mjs';
import { differences, meaning } from './support/meaning.mjs';
import { start } from './support/server.mjs';
import { require } from './support/wire.mjs';

const newest = require('e2b');
const older = require('e2b-2-20');
const interpreter = require('@e2b/code-interpreter');

const absent = (theirs) => (a, b) => a === undefined && (theirs === undefined || b === theirs);
const added = (pattern) => (a, b) => b === undefined && pattern.test(String(a));

// [place, test of (ours, theirs), reason]
const ALLOWED = {
  stamp: [/^body\.metadata\.demilune_\w+$/, added(/./), 'whose it is, and a mark to find it by'],
  no_internet: [/^body\.allow_internet_access$/, absent(true), 'the service decides; SDK 2.20 says its default'],
  no_pause: [/^body\.autoPause$/, absent(false), 'the default of the service, which SDK 2.20 says'],
  page: [/^query\.limit$/, added(/^\d+$/), 'the SDK leaves the page size to the service'],
  states: [/^query\.state$/, added(/^running,paused$/), 'all states, said rather than left to the service'],
  keepalive: [
    /^headers\.keepalive-ping-interval$/,
    (a, b) => b === '50',
    'our reader needs no signs of life: it has a deadline',
  ],
  ours: [/^headers\.x-demilune-/, added(/./), 'for our engine; every other service passes over it'],
  shell: [
    /^body\.frame0\.value\.process\.args\.\d$/,
    (a, b) => b === undefined || String(a).includes(b) || a.endsWith?.(b),
    'the command is the same, what surrounds it ends its group and keeps its variables',
  ],
  cwd: [/^body\.frame0\.value\.process\.cwd$/, added(/^\//), 'always said, so that no default of a template matters'],
  envs: [/^body\.frame0\.value\.process\.envs\.\w+$/, added(/./), "the sandbox's variables, which a login shell may have lost"],
  mark: [
    /^body\.frame0\.value\.process\.envs\.DEMILUNE_RUN$/,
    added(/^\w+$/),
    'by it all that a command started is found when it has to end',
  ],
  wrapper: [
    /^body\.frame0\.value\.process\.(cmd|args\.\d+)$/,
    () => true,
    'a task has a shell around it that keeps its output and ends it in time',
  ],
  beside: [
    /^query\.path$/,
    (a) => /^\/tmp\/\.demilune-\w+$/.test(a),
    'a file is written beside its place and moved there, so that nobody sees half of it',
  ],
  tag: [/^body\.frame0\.value\.tag$/, added(/./), 'the name that a signal is sent to'],
  by_tag: [/^body\.process\.(tag|pid)$/, () => true, 'a pid may be used again, a tag is not'],
  life_ms: [
    /^headers\.connect-timeout-ms$/,
    (a, b) => (a === undefined) !== (b === undefined) || Number(a) >= Number(b),
    "a background task's life is its wrapper's to end; a command's is its own timeout",
  ],
  polite: [/^body\.signal$/, (a) => a === 'SIGNAL_SIGTERM', 'a task is asked to end first, and killed if it does not'],
  range: [/^headers\.range$/, added(/^bytes=\d+-\d*$/), 'only what the model asked for'],
  type: [
    /^headers\.content-type$/,
    (a, b) => a === 'application/octet-stream' && b === 'multipart/form-data',
    'raw where envd has it',
  ],
  filename: [
    /^body\.\d\.content-disposition$/,
    (a, b) => /name="file"/.test(a) && /name="file"/.test(b),
    'path= in the query counts',
  ],
};

const server = await start({});
Object.assign(process.env, { E2B_API_KEY: server.key, E2B_API_URL: server.url, E2B_SANDBOX_URL: server.url });
const opts = { apiKey: server.key, apiUrl: server.url, sandboxUrl: server.url };

/** Runs one side and returns what it sent, and its value. */
async function sent(run) {
  server.recorder.clear();
  const value = await run();
  return { value, records: server.recorder.requests.slice() };
}

function namesFor(ids) {
  const tokens = [...server.control.sandboxes.values()].filter((one) => ids.includes(one.sandboxID));
  return [...ids.filter(Boolean).map((id) => [id, 'ID']), ...tokens.map((one) => [one.token, 'TOKEN']), [server.key, 'KEY']];
}

/** The request of an operation on both sides must mean the same; `extra`: what else we may send for it. */
function compare(op, ours, theirs, ids, allowed, extra = []) {
  const names = namesFor(ids);
  const mine = ours.filter((one) => one.op === op);
  const their = theirs.filter((one) => one.op === op);
  assert.ok(mine.length > 0, `we sent no ${op}, but ${ours.map((one) => one.op)}`);
  assert.ok(their.length > 0, `the SDK sent no ${op}, but ${theirs.map((one) => one.op)}`);
  const more = ours.map((one) => one.op).filter((one) => one !== op && !extra.includes(one));
  assert.deepEqual(more, [], `we also sent ${more}`);
  const unused = new Set(allowed);
  const wrong = differences(meaning(mine[0], names), meaning(their[0], names)).filter(([place, a, b]) => {
    const found = allowed.find((name) => ALLOWED[name][0].test(place) && ALLOWED[name][1](a, b));
    unused.delete(found);
    return !found;
  });
  assert.deepEqual(wrong, [], 'differences: [place, ours, theirs]');
  assert.deepEqual([...unused], [], 'allowed, but not needed');
}

const home = new Home(server, { provider: { lifetime: 300 } });
const ours = await home.serve();
let mine;
let their;

await it('create, minimal', async () => {
  const a = await sent(() => ours.must('create_sandbox'));
  const b = await sent(() => older.Sandbox.create(opts));
  await compareCreation(a, b, []);
  await ours.must('kill_sandbox', { sandbox_id: a.value.sandbox_id });
});

function compareCreation(a, b, ids) {
  return compare(
    'create',
    a.records,
    b.records,
    ids,
    ['stamp', 'no_internet', 'no_pause'].filter((name) => {
      const body = meaning(
        a.records.find((one) => one.op === 'create'),
        [],
      ).body;
      return name === 'stamp' || (name === 'no_internet' ? body.allow_internet_access : body.autoPause) === undefined;
    }),
  );
}

await it('create with all that the tool takes', async () => {
  const a = await sent(() => ours.must('create_sandbox', { template: 'base', timeout: 120, envs: { FOO: 'bar', B: 'ü "' } }));
  const b = await sent(() => older.Sandbox.create('base', { ...opts, timeoutMs: 120_000, envs: { FOO: 'bar', B: 'ü "' } }));
  await compareCreation(a, b, []);
  mine = a.value.sandbox_id;
  their = await newest.Sandbox.connect(b.value.sandboxId, opts);
});

await it('get', async () => {
  const a = await sent(() => ours.must('get_sandbox', { sandbox_id: mine }));
  const b = await sent(() => newest.Sandbox.getInfo(their.sandboxId, opts));
  compare('get', a.records, b.records, [mine, their.sandboxId], []);
});

await it('list', async () => {
  const a = await sent(() => ours.must('list_sandboxes'));
  const b = await sent(() => newest.Sandbox.list(opts).nextItems());
  compare('list', a.records, b.records, [], ['page', 'states']);
});

await it('list by state', async () => {
  const a = await sent(() => ours.must('list_sandboxes', { status: 'paused' }));
  const b = await sent(() => newest.Sandbox.list({ ...opts, query: { state: ['paused'] } }).nextItems());
  compare('list', a.records, b.records, [], ['page']);
});

await it('list by owner, in the encoding of metadata filters', async () => {
  const other = new Home(server, { provider: { tenancy: 'principal' } });
  const client = await other.serve();
  const made = await client.must('create_sandbox');
  const { demilune_principal } = server.control.find(made.sandbox_id).metadata;
  const a = await sent(() => client.must('list_sandboxes'));
  const b = await sent(() =>
    newest.Sandbox.list({ ...opts, query: { metadata: { demilune_principal }, state: ['running', 'paused'] } }).nextItems(),
  );
  const listed = a.value.sandboxes.map((one) => server.control.find(one.sandbox_id));
  assert.ok(listed.some((one) => one.sandboxID === made.sandbox_id));
  assert.ok(listed.every((one) => one.metadata.demilune_principal === demilune_principal));
  compare('list', a.records, b.records, [], ['page']);
  await client.stop();
  await other.remove();
});

await it('set the timeout', async () => {
  const a = await sent(() => ours.must('set_sandbox_timeout', { sandbox_id: mine, timeout: 250 }));
  const b = await sent(() => newest.Sandbox.setTimeout(their.sandboxId, 250_000, opts));
  compare('set_timeout', a.records, b.records, [mine, their.sandboxId], [], ['get']);
});

const START = ['mark', 'shell'];

await it('run a command with a folder and a timeout', async () => {
  const args = { command: 'echo hi; pwd', cwd: '/tmp', timeout: 20 };
  const a = await sent(() => ours.must('run_command', { ...args, sandbox_id: mine }));
  const b = await sent(() =>
    their.commands.run(args.command, { cwd: '/tmp', timeoutMs: 20_000, envs: { FOO: 'bar', B: 'ü "' } }),
  );
  assert.equal(a.value.stdout, b.value.stdout);
  compare('Start', a.records, b.records, [mine, their.sandboxId], START, ['set_timeout']);
});

await it('start something that goes on', async () => {
  const a = await sent(() => ours.must('start_background_task', { sandbox_id: mine, command: 'sleep 40' }));
  const b = await sent(() =>
    their.commands.run('sleep 40', { background: true, envs: { FOO: 'bar', B: 'ü "' }, timeoutMs: 0 }),
  );
  const starts = a.records.filter((one) => one.op === 'Start');
  const last = { ...a, records: [starts.at(-1)] };
  compare('Start', last.records, b.records, [mine, their.sandboxId], ['mark', 'wrapper', 'cwd', 'tag']);
  const c = await sent(() => ours.must('cancel_background_task', { task_id: a.value.task_id }));
  const d = await sent(() => b.value.kill());
  compare('SendSignal', c.records, d.records, [mine, their.sandboxId], ['by_tag', 'polite'], ['Start', 'read']);
});

await it('write, small and large', async () => {
  for (const content of ['hello ü', 'x'.repeat(300_000)]) {
    const a = await sent(() => ours.must('write_file', { sandbox_id: mine, path: '/tmp/ä b.txt', content }));
    const b = await sent(() => their.files.write('/tmp/ä b.txt', content, { useOctetStream: true }));
    compare('write', a.records, b.records, [mine, their.sandboxId], ['beside'], ['Start']);
  }
});

await it('read', async () => {
  const a = await sent(() => ours.must('download_file', { sandbox_id: mine, path: '/tmp/ä b.txt' }));
  const b = await sent(() => their.files.read('/tmp/ä b.txt', { format: 'bytes' }));
  compare('read', a.records, b.records, [mine, their.sandboxId], ['range']);
  const c = await sent(() => ours.must('read_file', { sandbox_id: mine, path: '/tmp/ä b.txt' }));
  compare('read', c.records, b.records, [mine, their.sandboxId], []);
});

await it('list a directory', async () => {
  const a = await sent(() => ours.must('list_files', { sandbox_id: mine, path: '/tmp' }));
  const b = await sent(() => their.files.list('/tmp'));
  compare('ListDir', a.records, b.records, [mine, their.sandboxId], []);
});

await it('resume on use', async () => {
  await their.pause();
  await newest.Sandbox.pause(mine, opts);
  const a = await sent(() => ours.must('run_command', { sandbox_id: mine, command: 'true' }));
  const b = await sent(() => older.Sandbox.connect(their.sandboxId, { ...opts, timeoutMs: 250_000 }));
  compare('connect', a.records, b.records, [mine, their.sandboxId], [], ['get', 'Start', 'set_timeout']);
});

await it('kill', async () => {
  const a = await sent(() => ours.must('kill_sandbox', { sandbox_id: mine }));
  const b = await sent(() => newest.Sandbox.kill(their.sandboxId, opts));
  compare('kill', a.records, b.records, [mine, their.sandboxId], [], ['get']);
});

await it('run code in a kernel', async () => {
  const made = await ours.must('create_sandbox', { template: 'code-interpreter-v1' });
  const sandbox = await interpreter.Sandbox.create(opts);
  const a = await sent(() => ours.must('run_code', { sandbox_id: made.sandbox_id, code: 'x = 1\nprint(x)' }));
  const b = await sent(() => sandbox.runCode('x = 1\nprint(x)'));
  assert.equal(a.value.stdout, '1\n');
  compare('execute', a.records, b.records, [made.sandbox_id, sandbox.sandboxId], [], ['interpreter GET health', 'ListDir']);
  await ours.must('kill_sandbox', { sandbox_id: made.sandbox_id });
  await sandbox.kill();
});

await ours.stop();

await it('write to an envd that takes forms alone', async () => {
  server.options.envdVersion = '0.5.1';
  const client = await home.serve();
  const { sandbox_id } = await client.must('create_sandbox');
  const sandbox = await older.Sandbox.create('base', opts);
  const a = await sent(() => client.must('write_file', { sandbox_id, path: '/tmp/f.txt', content: 'a\r\n--b' }));
  const b = await sent(() => sandbox.files.write('/tmp/f.txt', 'a\r\n--b'));
  assert.equal(await sandbox.files.read('/tmp/f.txt'), 'a\r\n--b');
  assert.equal((await client.must('read_file', { sandbox_id, path: '/tmp/f.txt' })).size, 6);
  compare('write', a.records, b.records, [sandbox_id, sandbox.sandboxId], ['beside', 'filename'], ['Start']);
  await client.stop();
});

await it('leaves nothing running', async () => {
  assert.deepEqual(await home.remove(), []);
});
await server.close();
finish();

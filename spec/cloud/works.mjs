// timeout: 90
// works.mjs - the real program against the stand-in, where nothing fails: old and new envd, kernels, ids of others, pauses,
// keys that change.
import fs from 'node:fs';
import path from 'node:path';

import { assert, finish, it, sleep } from '../peers/support/cases.mjs';
import { Home } from './support/driver.mjs';
import { start } from './support/server.mjs';
import { require } from './support/wire.mjs';

const { Sandbox } = require('e2b');

/** Runs `body(client, server, home)` in a world of its own and looks at what is left of it. */
async function world(options, body) {
  const server = await start(options.server);
  const home = new Home(server, options.home);
  const client = await home.serve();
  try {
    await body(client, server, home, { apiKey: server.key, apiUrl: server.url, sandboxUrl: server.url });
  } finally {
    await client.stop();
  }
  assert.deepEqual(await home.remove(), []);
  const left = server.ids.filter((id) => server.control.sandboxes.get(id).metadata?.demilune_scope);
  assert.deepEqual(left, [], 'sandboxes of ours are left');
  await server.close();
}

for (const envdVersion of ['0.6.5', '0.5.1', '0.3.5']) {
  await it(`commands and files with envd ${envdVersion}`, () =>
    world({ server: { envdVersion } }, async (client) => {
      const { sandbox_id } = await client.must('create_sandbox', { envs: { FOO: 'bär' } });
      const ran = await client.must('run_command', { sandbox_id, command: 'echo $FOO; echo no >&2; exit 3' });
      assert.deepEqual([ran.stdout, ran.stderr, ran.exit_code, ran.timed_out], ['bär\n', 'no\n', 3, false]);
      const late = await client.must('run_command', { sandbox_id, command: 'echo first; sleep 30 & sleep 30', timeout: 1 });
      assert.deepEqual([late.timed_out, late.exit_code, late.stdout], [true, null, 'first\n']);
      await sleep(300);
      const still = await client.must('run_command', { sandbox_id, command: 'ps ax 2>/dev/null | grep -c "[s]leep 30"' });
      assert.equal(still.stdout, '0\n', 'children outlive the deadline');
      const big = await client.must('run_command', { sandbox_id, command: 'head -c 5000000 /dev/zero | tr "\\0" x' });
      assert.equal(big.stdout_truncated, true);
      const content = 'první\r\n--b\n\n';
      assert.equal(
        (await client.must('write_file', { sandbox_id, path: 'd/ä b', content })).bytes_written,
        Buffer.byteLength(content),
      );
      assert.equal((await client.must('read_file', { sandbox_id, path: 'd/ä b' })).size, Buffer.byteLength(content));
      const bytes = Buffer.from([0, 255, 254, 10, 13, 0]);
      await client.must('upload_file', { sandbox_id, path: 'b', content_base64: bytes.toString('base64') });
      await client.must('upload_file', { sandbox_id, path: 'b', content_base64: bytes.toString('base64'), offset: 6 });
      const down = await client.must('download_file', { sandbox_id, path: 'b' });
      assert.deepEqual(Buffer.from(down.content_base64, 'base64'), Buffer.concat([bytes, bytes]));
      const listed = await client.must('list_files', { sandbox_id, path: 'd' });
      assert.deepEqual(
        listed.files.map((one) => one.name),
        ['ä b'],
      );
      for (const [tool, args, category] of [
        ['read_file', { path: 'none' }, 'file_not_found'],
        ['read_file', { path: 'd' }, 'is_directory'],
        ['list_files', { path: 'none' }, 'file_not_found'],
        ['run_command', { command: 'true', cwd: '/none' }, 'file_not_found'],
        ['upload_file', { path: 'b', content_base64: 'YQ==', offset: 5 }, 'conflict'],
      ]) {
        assert.equal((await client.try(tool, { sandbox_id, ...args })).error?.category, category, tool);
      }
      const { task_id } = await client.must('start_background_task', { sandbox_id, command: 'echo one; sleep 0.3; exit 4' });
      let task;
      for (let i = 0; i < 20 && task?.status !== 'failed'; i += 1)
        task = await client.must('get_background_task', { task_id, wait: 2 });
      assert.deepEqual([task.exit_code, task.stdout], [4, 'one\n']);
      const other = await client.must('start_background_task', { sandbox_id, command: 'sleep 77 & sleep 77' });
      await client.must('cancel_background_task', { task_id: other.task_id });
      await sleep(300);
      const gone = await client.must('run_command', { sandbox_id, command: 'ps ax 2>/dev/null | grep -c "[s]leep 77"' });
      assert.equal(gone.stdout, '0\n', 'a cancelled task goes on');
    }));
}

await it('code runs in a kernel that remembers, where there is one', () =>
  world({}, async (client, server) => {
    const { sandbox_id } = await client.must('create_sandbox', { template: 'code-interpreter-v1' });
    const run = (code, more) => client.must('run_code', { sandbox_id, code, ...more });
    await run('x = 41\nimport sys');
    const ran = await run('print("out"); print("err", file=sys.stderr)\nx + 1');
    assert.equal(ran.stdout.startsWith('out\n'), true);
    assert.equal(ran.stderr, 'err\n');
    assert.match(JSON.stringify(ran), /42/);
    const bad = await run('1 / 0');
    assert.match(bad.stderr + JSON.stringify(bad), /ZeroDivisionError/);
    assert.notEqual(bad.exit_code, 0);
    const late = await run('import time\ntime.sleep(20)', { timeout: 1 });
    assert.equal(late.timed_out, true);
    assert.match(JSON.stringify(await run('x')), /41/);
    assert.ok(server.recorder.count('execute') >= 5);
    const plain = await client.must('create_sandbox', { template: 'base' });
    assert.equal((await client.must('run_code', { sandbox_id: plain.sandbox_id, code: 'print(7)' })).stdout, '7\n');
  }));

await it('a sandbox of others is looked at and given time, never woken, and the connection closed', () =>
  world({}, async (client, server, home, opts) => {
    const theirs = await Sandbox.create('base', { ...opts, timeoutMs: 100_000 });
    const sleeping = await Sandbox.create('base', { ...opts, timeoutMs: 100_000 });
    await sleeping.pause();
    server.recorder.clear();
    assert.equal((await client.must('get_sandbox', { sandbox_id: sleeping.sandboxId })).status, 'paused');
    await client.must('get_sandbox', { sandbox_id: theirs.sandboxId });
    await client.must('set_sandbox_timeout', { sandbox_id: theirs.sandboxId, timeout: 200 });
    const { requests } = server.recorder;
    assert.ok(
      requests.every((one) => ['get', 'set_timeout'].includes(one.op)),
      requests.map((one) => one.op).join(),
    );
    await sleep(100);
    assert.ok(
      requests.every((one) => one.socket.destroyed),
      'a connection stays open',
    );
    assert.equal(new Set(requests.map((one) => one.socket)).size, requests.length, 'a connection was shared');
    assert.equal((await sleeping.getInfo()).state, 'paused');
    assert.equal((await client.try('get_sandbox')).error.category, 'no_default_sandbox');
    await client.stop();
    assert.equal(await theirs.isRunning(), true);
  }));

await it('a sandbox of others is worked in by its id alone, and outlives us', () =>
  world({}, async (client, server, home, opts) => {
    const theirs = await Sandbox.create('base', { ...opts, timeoutMs: 100_000 });
    server.recorder.clear();
    assert.equal((await client.must('run_command', { sandbox_id: theirs.sandboxId, command: 'echo in' })).stdout, 'in\n');
    assert.equal((await client.must('run_command', { sandbox_id: theirs.sandboxId, command: 'echo again' })).stdout, 'again\n');
    assert.equal(server.recorder.count('connect'), 0);
    assert.ok(server.recorder.count('get') <= 2, `${server.recorder.count('get')} GETs`);
    await client.stop();
    assert.equal(await theirs.isRunning(), true);
  }));

await it('a paused sandbox goes on when it is used', () =>
  world({}, async (client, server, home, opts) => {
    const { sandbox_id } = await client.must('create_sandbox');
    await client.must('write_file', { sandbox_id, path: 'kept', content: 'k' });
    await Sandbox.pause(sandbox_id, opts);
    assert.equal((await client.must('run_command', { command: 'cat kept' })).stdout, 'k');
    await Sandbox.pause(sandbox_id, opts);
    assert.equal((await client.must('read_file', { path: 'kept' })).size, 1);
  }));

await it('or says that it is paused, where it is not to be woken', () =>
  world({ home: { provider: { auto_resume: false } } }, async (client, server, home, opts) => {
    const { sandbox_id } = await client.must('create_sandbox');
    await Sandbox.pause(sandbox_id, opts);
    for (const call of [
      ['run_command', { command: 'true' }],
      ['read_file', { path: 'x' }],
      ['list_files', {}],
    ]) {
      assert.equal((await client.try(...call)).error?.category, 'sandbox_paused', call[0]);
    }
    assert.equal(server.recorder.count('connect'), 0);
  }));

await it('a paused sandbox is not taken for a lost one when its lifetime is set, and ends with its scope', () =>
  world({}, async (client, server, home, opts) => {
    const { sandbox_id } = await client.must('create_sandbox');
    await Sandbox.pause(sandbox_id, opts);
    assert.equal((await client.try('set_sandbox_timeout', { timeout: 100 })).error?.category, 'sandbox_paused');
    assert.equal((await client.must('get_sandbox')).status, 'paused');
    await client.stop();
    assert.deepEqual(server.ids, []);
  }));

await it('a sandbox that ended is told from one that never was', () =>
  world({}, async (client, server, home, opts) => {
    for (const call of [
      ['run_command', { command: 'true' }],
      ['read_file', { path: 'x' }],
      ['write_file', { path: 'x', content: 'y' }],
      ['list_files', {}],
      ['run_code', { code: '1' }],
      ['get_sandbox', {}],
      ['set_sandbox_timeout', { timeout: 60 }],
    ]) {
      const { sandbox_id } = await client.must('create_sandbox');
      await Sandbox.kill(sandbox_id, opts);
      const { error } = await client.try(call[0], { ...call[1], sandbox_id });
      assert.equal(error?.category, 'sandbox_gone', `${call[0]}: ${JSON.stringify(error)}`);
    }
    const { error } = await client.try('get_sandbox', { sandbox_id: `i${'0'.repeat(18)}` });
    assert.deepEqual([error.category, error.field], ['not_found', 'sandbox_id']);
  }));

await it('a key that changed is read again after a 401, once', async () => {
  const server = await start({ keys: [`k1${'a'.repeat(38)}`] });
  const home = new Home(server, { source: 'file:key' });
  const file = path.join(home.path, 'key');
  const put = (key) => fs.writeFileSync(file, `${key}\n`, { mode: 0o600 });
  put(server.key);
  const client = await home.serve();
  await client.must('list_sandboxes');
  server.keys = [`k2${'b'.repeat(38)}`];
  assert.equal((await client.try('list_sandboxes')).error.category, 'authentication_failed');
  put(server.key);
  server.recorder.clear();
  await client.must('create_sandbox');
  assert.equal(server.recorder.count('create'), 2);
  await client.must('list_sandboxes');
  assert.equal(server.recorder.count('list'), 1);
  fs.chmodSync(file, 0o644);
  const other = await home.call('list_sandboxes', {});
  assert.equal(JSON.parse(other.stdout).error.category, 'authentication_failed');
  await client.stop();
  await home.remove();
  await server.close();
});

await it('what may be repeated is, and is told to wait as long as it was asked to', () =>
  world({}, async (client, server) => {
    for (const fault of [
      { status: 503 },
      { status: 502 },
      { status: 504 },
      { reset: 'start' },
      { status: 429, headers: { 'retry-after': '1' } },
    ]) {
      server.faults.add({ op: 'list', times: 1, ...fault });
      server.recorder.clear();
      const begun = Date.now();
      await client.must('list_sandboxes');
      assert.equal(server.recorder.count('list'), 2, JSON.stringify(fault));
      if (fault.headers) assert.ok(Date.now() - begun >= 900);
    }
    for (const [op, call] of [
      ['create', ['create_sandbox', {}]],
      ['list', ['list_sandboxes', {}]],
    ]) {
      server.faults.add({ op, times: 1, status: 429 });
      server.recorder.clear();
      assert.equal((await client.try(...call)).error?.category, 'quota_exceeded');
      assert.equal(server.recorder.count(op), 1, 'a 429 without Retry-After was repeated');
    }
    server.faults.clear();
    server.faults.add({ op: 'create', times: 1, status: 503 });
    server.recorder.clear();
    assert.equal((await client.try('create_sandbox')).error?.category, 'no_capacity');
    assert.equal(server.recorder.count('create'), 1, 'a creation was repeated');
  }));

finish();

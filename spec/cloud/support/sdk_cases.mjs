// sdk_cases.mjs - what E2B's official SDK can do, as cases over any server of its protocol. What a server does not have is
// named in `without`, and is then refused there instead.
import { assert, it, sleep, within } from '../../peers/support/cases.mjs';

const isNamed = (name) => (error) => {
  assert.equal(error.name, name, `${error.name}: ${error.message}`);
  return true;
};

/** Waits until `get()` is true. */
export async function until(get, ms = 5000) {
  const deadline = Date.now() + ms;
  for (;;) {
    const value = await get();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`not so after ${ms} ms: ${get}`);
    await sleep(20);
  }
}

async function control(its, { Sandbox, opts, create }) {
  let sandbox;
  await its('creates a sandbox with all that a creation can say', async () => {
    sandbox = await create('base', { metadata: { user: 'a b', app: 'x&y=ü' }, envs: { FOO: 'bar' }, timeoutMs: 120_000 });
    assert.match(sandbox.sandboxId, /^[a-z0-9]+$/);
    assert.equal(await sandbox.isRunning(), true);
  });
  await its('creates one of the default template', async () => {
    const other = await create(undefined, { timeoutMs: 60_000 });
    await other.kill();
  });
  await its('refuses a template that is not there', async () => {
    await assert.rejects(create('no-such-template', {}), (error) => /404|not found/i.test(error.message));
  });
  await its('tells of it', async () => {
    const info = await sandbox.getInfo();
    assert.deepEqual(info.metadata, { user: 'a b', app: 'x&y=ü' });
    assert.equal(info.sandboxId, sandbox.sandboxId);
    assert.equal(info.state, 'running');
    const left = info.endAt.getTime() - Date.now();
    assert.ok(left > 100_000 && left <= 121_000, String(left));
    assert.ok(Math.abs(info.startedAt.getTime() - Date.now()) < 20_000);
  });
  await its('sets its lifetime, shorter and longer', async () => {
    for (const seconds of [200, 90]) {
      await sandbox.setTimeout(seconds * 1000);
      const left = (await sandbox.getInfo()).endAt.getTime() - Date.now();
      assert.ok(left > (seconds - 10) * 1000 && left <= (seconds + 1) * 1000, String(left));
    }
  });
  await its('lists by metadata and state, page by page', async () => {
    const mark = { mark: `m ${Math.random()} & %` };
    const made = [];
    for (let i = 0; i < 3; i += 1) made.push(await create('base', { metadata: mark, timeoutMs: 60_000 }));
    const pages = Sandbox.list({ ...opts, query: { metadata: mark, state: ['running'] }, limit: 2 });
    const seen = [];
    const sizes = [];
    while (pages.hasNext) {
      const page = await pages.nextItems();
      sizes.push(page.length);
      seen.push(...page.map((one) => one.sandboxId));
    }
    assert.deepEqual(sizes, [2, 1]);
    assert.deepEqual(seen.sort(), made.map((one) => one.sandboxId).sort());
    const none = Sandbox.list({ ...opts, query: { metadata: { ...mark, other: 'x' } } });
    assert.deepEqual(await none.nextItems(), []);
    const all = Sandbox.list(opts);
    assert.ok((await all.nextItems()).length >= 4);
    for (const one of made) await one.kill();
  });
  await its('connects by id alone', async () => {
    const again = await Sandbox.connect(sandbox.sandboxId, { ...opts, timeoutMs: 300_000 });
    assert.equal((await again.commands.run('echo $FOO')).stdout, 'bar\n');
    assert.ok((await sandbox.getInfo()).endAt.getTime() - Date.now() > 250_000);
  });
  await its('does not connect to what is not there', async () => {
    await assert.rejects(Sandbox.connect(`i${'0'.repeat(18)}`, opts), (error) => /NotFound/.test(error.name));
    await assert.rejects(Sandbox.getInfo(`i${'0'.repeat(18)}`, opts), (error) => /NotFound/.test(error.name));
  });
  await its('gives metrics', async () => {
    const [metric] = await until(async () => {
      const found = await sandbox.getMetrics();
      return found.length > 0 && found;
    });
    assert.ok(metric.cpuCount >= 1 && metric.memTotal > 0, JSON.stringify(metric));
  });
  await its('is refused with another key', async () => {
    await assert.rejects(
      Sandbox.list({ ...opts, apiKey: `e2b_${'0'.repeat(40)}` }).nextItems(),
      isNamed('AuthenticationError'),
    );
  });
  return sandbox;
}

async function commands(its, sandbox, { without, isMultipart }) {
  const { commands: run } = sandbox;
  await its('runs commands with variables and a folder', async () => {
    const ran = await run.run('echo $FOO $A; echo err >&2; pwd', { envs: { A: '1' }, cwd: '/tmp' });
    assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode], ['bar 1\n/tmp\n', 'err\n', 0]);
    assert.equal((await run.run('pwd')).stdout, '/home/user\n');
  });
  await its('tells how a command ended', async () => {
    await assert.rejects(run.run('echo out; echo bad >&2; exit 3'), (error) => {
      assert.deepEqual([error.name, error.exitCode, error.stdout, error.stderr], ['CommandExitError', 3, 'out\n', 'bad\n']);
      return true;
    });
    await assert.rejects(run.run('kill -9 $$'), isNamed('CommandExitError'));
  });
  await its('refuses a folder that is not there', async () => {
    await assert.rejects(run.run('true', { cwd: '/no/such' }), isNamed('InvalidArgumentError'));
  });
  await its('ends a command at its deadline', async () => {
    const start = Date.now();
    await assert.rejects(run.run('exec sleep 20', { timeoutMs: 400 }), isNamed('TimeoutError'));
    assert.ok(Date.now() - start < 4000);
    await until(async () => !(await run.list()).some((one) => one.args.join(' ').includes('sleep 20')));
  });
  await its('streams output as it comes', async () => {
    const seen = [];
    const at = [];
    await run.run('for i in 1 2 3; do echo $i; sleep 0.2; done; echo e >&2', {
      onStdout: (text) => {
        seen.push(text);
        at.push(Date.now());
      },
      onStderr: (text) => seen.push(`E${text}`),
    });
    assert.deepEqual(seen, ['1\n', '2\n', '3\n', 'Ee\n']);
    assert.ok(at[2] - at[0] > 250, String(at));
  });
  await its('moves megabytes of output', async () => {
    const ran = await run.run('head -c 3000000 /dev/zero | tr "\\0" x');
    assert.equal(ran.stdout.length, 3_000_000);
    assert.equal((await run.run('printf "ž%.0s" $(seq 40000)')).stdout, 'ž'.repeat(40_000));
  });
  await its('feeds a command, and ends its input', async () => {
    let got = '';
    const handle = await run.run(isMultipart ? 'exec cat' : 'cat; echo done', {
      background: true,
      stdin: true,
      onStdout: (text) => {
        got += text;
      },
    });
    assert.ok((await run.list()).some((one) => one.pid === handle.pid && one.cmd === '/bin/bash'));
    await run.sendStdin(handle.pid, 'héllo\n');
    await until(() => got === 'héllo\n');
    if (isMultipart) {
      // An envd that old cannot be told so.
      await assert.rejects(run.closeStdin(handle.pid), /closeStdin/);
      await run.kill(handle.pid);
      await assert.rejects(handle.wait());
      return;
    }
    await run.closeStdin(handle.pid);
    assert.equal((await handle.wait()).stdout, 'héllo\ndone\n');
  });
  await its('kills by pid, once', async () => {
    const handle = await run.run('exec sleep 50', { background: true });
    assert.equal(await run.kill(handle.pid), true);
    await assert.rejects(handle.wait());
    assert.equal(await run.kill(handle.pid), false);
  });
  await its('connects to a process that runs, and lets go of it', async () => {
    const handle = await run.run('sleep 0.6; echo late; exec sleep 30', { background: true });
    let got = '';
    const other = await run.connect(handle.pid, {
      onStdout: (text) => {
        got += text;
      },
    });
    await until(() => got === 'late\n');
    await handle.disconnect();
    await other.disconnect();
    await sleep(100);
    assert.ok((await run.list()).some((one) => one.pid === handle.pid));
    assert.equal(await run.kill(handle.pid), true);
    await assert.rejects(run.connect(4_000_000), isNamed('NotFoundError'));
  });
  await its('runs as root', async () => {
    const ask = run.run('id -un; echo $HOME', { user: 'root' });
    if (without.includes('root')) await assert.rejects(ask, isNamed('AuthenticationError'));
    else assert.equal((await ask).stdout, 'root\n/root\n');
  });
  await its('refuses a user that is not there', async () => {
    await assert.rejects(run.run('true', { user: 'nosuch' }), isNamed('AuthenticationError'));
  });
  await its('opens a terminal', async () => {
    let text = '';
    const open = sandbox.pty.create({
      cols: 100,
      rows: 30,
      onData: (data) => {
        text += Buffer.from(data);
      },
    });
    if (without.includes('pty')) {
      await assert.rejects(open);
      return;
    }
    const pty = await open;
    await sandbox.pty.sendInput(pty.pid, Buffer.from('stty size\n'));
    await until(() => text.includes('30 100'));
    await sandbox.pty.resize(pty.pid, { cols: 60, rows: 20 });
    await sandbox.pty.sendInput(pty.pid, Buffer.from('stty size; exit\n'));
    await until(() => text.includes('20 60'));
    await pty.wait();
  });
}

async function files(its, sandbox, { isMultipart, without }) {
  const { files: io } = sandbox;
  await its('writes and reads text and bytes', async () => {
    const wrote = await io.write('hello.txt', 'hello ü');
    assert.equal(wrote.path, '/home/user/hello.txt');
    assert.equal(await io.read('hello.txt'), 'hello ü');
    const bytes = new Uint8Array([0, 1, 2, 255, 13, 10, 0]);
    await io.write('/tmp/deep/er/b.bin', bytes.buffer);
    assert.deepEqual([...(await io.read('/tmp/deep/er/b.bin', { format: 'bytes' }))], [...bytes]);
    await io.write('hello.txt', '');
    assert.equal(await io.read('hello.txt'), '');
  });
  await its('writes many files at once', async () => {
    const wrote = await io.write([
      { path: 'a.txt', data: 'A' },
      { path: '/tmp/dir/b.txt', data: 'B' },
    ]);
    assert.deepEqual(
      wrote.map((one) => one.path),
      ['/home/user/a.txt', '/tmp/dir/b.txt'],
    );
    assert.equal(await io.read('/tmp/dir/b.txt'), 'B');
  });
  if (!isMultipart) {
    await its('writes raw bytes', async () => {
      await io.write('o.txt', 'octet', { useOctetStream: true });
      assert.equal(await io.read('o.txt'), 'octet');
    });
  }
  await its('moves 20 MB up and down', async () => {
    await io.write('big', new Uint8Array(20 << 20).fill(7).buffer);
    const back = await io.read('big', { format: 'bytes' });
    assert.deepEqual([back.length, back[0], back.at(-1)], [20 << 20, 7, 7]);
    let size = 0;
    for await (const chunk of await io.read('big', { format: 'stream' })) size += chunk.length;
    assert.equal(size, 20 << 20);
    await io.remove('big');
  });
  await its('says what is not there', async () => {
    await assert.rejects(io.read('missing'), (error) => /NotFound/.test(error.name));
    await assert.rejects(io.list('missing'), (error) => /NotFound/.test(error.name));
    assert.equal(await io.exists('missing'), false);
    assert.equal(await io.exists('a.txt'), true);
  });
  await its('lists, by depth', async () => {
    assert.equal(await io.makeDir('d/e'), true);
    assert.equal(await io.makeDir('d/e'), false);
    await io.write('d/e/f', 'x');
    const names = async (depth) => (await io.list('d', { depth })).map((one) => `${one.type} ${one.path}`).sort();
    assert.deepEqual(await names(1), ['dir /home/user/d/e']);
    assert.deepEqual(await names(2), ['dir /home/user/d/e', 'file /home/user/d/e/f']);
  });
  await its('tells of one file', async () => {
    const info = await io.getInfo('d/e/f');
    assert.deepEqual([info.name, info.type, info.size, info.path], ['f', 'file', 1, '/home/user/d/e/f']);
    assert.ok(Math.abs(info.modifiedTime.getTime() - Date.now()) < 60_000);
  });
  await its('moves and removes', async () => {
    const moved = await io.rename('a.txt', 'moved.txt');
    assert.equal(moved.path, '/home/user/moved.txt');
    assert.equal(await io.read('moved.txt'), 'A');
    await assert.rejects(io.rename('a.txt', 'x'), (error) => /NotFound/.test(error.name));
    await io.remove('d');
    assert.equal(await io.exists('d'), false);
  });
  await its('sees changes in a folder', async () => {
    await io.makeDir('watched');
    const seen = [];
    const watch = await io.watchDir('watched', (event) => seen.push(`${event.type} ${event.name}`));
    await io.write('watched/w.txt', 'one');
    await until(() => seen.some((one) => /^(create|write) w\.txt/.test(one)));
    await sandbox.commands.run('cd watched; mv w.txt v.txt; rm v.txt');
    await until(() => seen.some((one) => /^remove v\.txt/.test(one)));
    await watch.stop();
  });
  if (!without.includes('recursive watch')) {
    await its('sees changes below a folder', async () => {
      await io.makeDir('tree/in');
      const seen = [];
      const watch = await io.watchDir('tree', (event) => seen.push(event.name), { recursive: true });
      await io.write('tree/in/leaf', 'x');
      await until(() => seen.includes('in/leaf'));
      await watch.stop();
    });
  }
  await its('makes URLs that need no header', async () => {
    await io.write('signed.txt', 'by URL');
    const down = await sandbox.downloadUrl('signed.txt', { useSignatureExpiration: 60 });
    const headers = { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': '49983' };
    const got = await fetch(down, { headers });
    assert.deepEqual([got.status, await got.text()], [200, 'by URL']);
    const wrong = await fetch(down.replace('signed.txt', 'other.txt'), { headers });
    assert.equal(wrong.status, 401);
    const form = new FormData();
    form.append('file', new Blob(['up']), 'ignored');
    const up = await fetch(await sandbox.uploadUrl('up.txt'), { method: 'POST', headers, body: form });
    assert.equal(up.status, 200);
    assert.equal(await io.read('up.txt'), 'up');
    const late = await fetch(await sandbox.downloadUrl('up.txt', { useSignatureExpiration: -5 }), { headers });
    assert.equal(late.status, 401);
  });
}

async function pausing(its, sandbox, { Sandbox, opts }) {
  await its('pauses and resumes with its processes', async () => {
    const handle = await sandbox.commands.run('exec sleep 300', { background: true });
    await sandbox.pause();
    assert.equal((await sandbox.getInfo()).state, 'paused');
    assert.equal(await sandbox.isRunning(), false);
    const paused = Sandbox.list({ ...opts, query: { state: ['paused'] } });
    assert.ok((await paused.nextItems()).some((one) => one.sandboxId === sandbox.sandboxId));
    await Sandbox.connect(sandbox.sandboxId, { ...opts, timeoutMs: 60_000 });
    assert.equal(await sandbox.isRunning(), true);
    assert.ok((await sandbox.commands.list()).some((one) => one.pid === handle.pid));
    assert.equal(await sandbox.commands.kill(handle.pid), true);
  });
}

async function ending(its, sandbox, { Sandbox, opts, create }) {
  await its('kills, once', async () => {
    assert.equal(await Sandbox.kill(sandbox.sandboxId, opts), true);
    assert.equal(await Sandbox.kill(sandbox.sandboxId, opts), false);
    assert.equal(await sandbox.isRunning(), false);
    await assert.rejects(sandbox.getInfo(), (error) => /NotFound/.test(error.name));
    await assert.rejects(sandbox.commands.run('true'));
  });
  await its('ends by itself', async () => {
    const brief = await create('base', { timeoutMs: 1000 });
    assert.equal(await brief.isRunning(), true);
    await until(async () => !(await brief.isRunning()), 4000);
  });
}

/** All of the SDK but the code interpreter. `target`: { name, sdk, opts, without, isMultipart }. */
export async function runSdk(target) {
  const { Sandbox } = target.sdk;
  const { opts } = target;
  const its = (text, body) => it(`${target.name}: ${text}`, body);
  const create = (template, more) =>
    template ? Sandbox.create(template, { ...opts, ...more }) : Sandbox.create({ ...opts, ...more });
  const given = { ...target, Sandbox, create, without: target.without ?? [] };
  const sandbox = await control(its, given);
  await commands(its, sandbox, given);
  await files(its, sandbox, given);
  await pausing(its, sandbox, given);
  await ending(its, sandbox, given);
}

/** The code interpreter's SDK. */
export async function runInterpreter(target) {
  const { Sandbox } = target.sdk;
  const its = (text, body) => it(`${target.name}: ${text}`, body);
  let sandbox;
  await its('creates a sandbox with a kernel', async () => {
    sandbox = await Sandbox.create({ ...target.opts, timeoutMs: 120_000 });
  });
  if (!sandbox) return;
  await its('keeps variables from one execution to the next', async () => {
    await sandbox.runCode('x = 20\nimport math');
    const ran = await sandbox.runCode('print("hi")\nx * 2 + math.floor(2.5)');
    assert.deepEqual(ran.logs.stdout.join(''), 'hi\n');
    assert.equal(ran.text, '42');
    assert.equal(ran.error, undefined);
    assert.ok(ran.executionCount >= 2);
  });
  await its('streams its output, also of children', async () => {
    const seen = [];
    const ran = await sandbox.runCode('import os, sys\nprint("a")\nprint("e", file=sys.stderr)\n_ = os.system("echo child")', {
      onStdout: (message) => seen.push(message.line),
      onStderr: (message) => seen.push(`E${message.line}`),
    });
    assert.equal(seen.filter((one) => !one.startsWith('E')).join(''), 'a\nchild\n');
    assert.equal(ran.logs.stderr.join(''), 'e\n');
  });
  await its('tells of an exception', async () => {
    const ran = await sandbox.runCode('1 / 0');
    assert.deepEqual([ran.error.name, ran.error.value], ['ZeroDivisionError', 'division by zero']);
    assert.match(ran.error.traceback, /ZeroDivisionError/);
    assert.equal((await sandbox.runCode('x')).text, '20');
    assert.equal((await sandbox.runCode('def')).error.name, 'SyntaxError');
  });
  await its('takes variables of the environment', async () => {
    const ran = await sandbox.runCode('import os; os.environ["A_B"]', { envs: { A_B: 'c d' } });
    assert.equal(ran.text, "'c d'");
  });
  await its('gives results in more than one form', async () => {
    const ran = await sandbox.runCode(
      'class H:\n  def _repr_html_(self): return "<b>h</b>"\n  def __repr__(self): return "H!"\nH()',
    );
    assert.equal(ran.results[0].html, '<b>h</b>');
    assert.equal(ran.results[0].text, 'H!');
  });
  await its('keeps contexts apart', async () => {
    const context = await sandbox.createCodeContext({ cwd: '/tmp' });
    assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, "'/tmp'");
    assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError');
    await sandbox.runCode('x = 1', { context });
    assert.ok((await sandbox.listCodeContexts()).some((one) => one.id === context.id));
    await sandbox.restartCodeContext(context);
    assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError');
    await sandbox.removeCodeContext(context);
    assert.ok(!(await sandbox.listCodeContexts()).some((one) => one.id === context.id));
    await assert.rejects(sandbox.runCode('1', { context }));
  });
  await its('stops an execution whose time is over, and keeps the kernel', async () => {
    await assert.rejects(sandbox.runCode('import time\ntime.sleep(30)', { timeoutMs: 700 }));
    const ran = await within(8000, sandbox.runCode('x'), 'the next execution');
    assert.equal(ran.text, '20');
  });
  await its('has files and commands beside it', async () => {
    await sandbox.runCode('open("/home/user/by-kernel", "w").write("k")');
    assert.equal(await sandbox.files.read('/home/user/by-kernel'), 'k');
    assert.equal((await sandbox.commands.run('cat by-kernel')).stdout, 'k');
  });
  await its('is killed', async () => {
    assert.equal(await sandbox.kill(), true);
  });
}

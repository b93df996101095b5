// contract.mjs - what the tool contract promises every client, as cases over an adapter, so that each client library and
// each revision runs the same ones.
//
// An adapter: { name, isModern, pid(), list(), call(name, args, options?), ping(), close(), raw? }. `call` resolves with
// the whole result of tools/call and rejects on a JSON-RPC error; options are { onprogress, signal }.
import { assert, it, skip, sleep, within } from './cases.mjs';
import { descendants, describe, goneAfter, isAlive, leftOf, processesOf, removeHome } from './server.mjs';

export const TOOLS = [
  'cancel_background_task', 'create_sandbox', 'download_file', 'get_background_task', 'get_sandbox', 'kill_sandbox',
  'list_files', 'list_sandboxes', 'read_file', 'run_code', 'run_command', 'set_sandbox_timeout', 'start_background_task',
  'upload_file', 'write_file',
];
const METADATA = [
  'cpu_count', 'disk_size_mb', 'end_at', 'memory_mb', 'region', 'sandbox_id', 'started_at', 'status', 'template',
];
const LIST_BYTES_MAX = 10 * 1024;
const LIST_BYTES_MAX_WITH_OUTPUT = 16 * 1024;

/** The structured content of a result that must have worked. */
export function worked(result) {
  assert.ok(!result.isError, JSON.stringify(result.content));
  assert.ok(result.structuredContent, 'no structuredContent');
  assert.equal(result.content.length, 1);
  assert.equal(result.content[0].type, 'text');
  // download_file's text leaves the bytes to the structured content.
  const { content_base64: _bytes, ...told } = result.structuredContent;
  assert.deepEqual(JSON.parse(result.content[0].text), told);
  return result.structuredContent;
}

/** The error object of a result that must have failed, with the forms that section 1 of the contract asks for. */
export function failed(result, category) {
  assert.equal(result.isError, true, JSON.stringify(result.structuredContent));
  assert.equal(result.structuredContent, undefined);
  assert.equal(result.content.length, 1);
  const { error } = JSON.parse(result.content[0].text);
  assert.deepEqual(result._meta?.['dev.demilune/error'], error);
  assert.equal(error.category, category);
  assert.equal(typeof error.retryable, 'boolean');
  assert.match(error.message, /\.$/);
  return error;
}

function checkTools(tools) {
  assert.deepEqual(tools.map((tool) => tool.name).sort(), TOOLS);
  for (const tool of tools) {
    assert.ok(tool.title && tool.description, tool.name);
    assert.ok(tool.description.length <= 400, `${tool.name}: ${tool.description.length} characters`);
    assert.equal(tool.inputSchema.type, 'object', tool.name);
    assert.equal(tool.inputSchema.additionalProperties, false, tool.name);
    assert.equal(tool.outputSchema?.type, 'object', tool.name);
    for (const hint of ['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint']) {
      assert.equal(typeof tool.annotations?.[hint], 'boolean', `${tool.name} ${hint}`);
    }
  }
  const bare = tools.map(({ outputSchema: _, ...rest }) => rest);
  const bytes = (value) => Buffer.byteLength(JSON.stringify(value));
  assert.ok(bytes(bare) <= LIST_BYTES_MAX, `${bytes(bare)} bytes without output schemas`);
  assert.ok(bytes(tools) <= LIST_BYTES_MAX_WITH_OUTPUT, `${bytes(tools)} bytes with output schemas`);
}

async function beforeAnySandbox(client) {
  const named = (text) => `${client.name}: ${text}`;
  await it(named('lists the fifteen tools, complete and small'), async () => checkTools(await client.list()));
  await it(named('answers ping, or refuses it where the revision has none'), async () => {
    if (client.isModern) await assert.rejects(client.ping());
    else await client.ping();
  });
  await it(named('refuses to act on a default that is not there'), async () => {
    for (const [tool, args] of [
      ['get_sandbox', {}], ['kill_sandbox', {}], ['set_sandbox_timeout', { timeout: 60 }],
      ['read_file', { path: 'x' }], ['list_files', {}], ['download_file', { path: 'x' }],
    ]) failed(await client.call(tool, args), 'no_default_sandbox');
  });
  await it(named('names the field of a bad argument, never its value'), async () => {
    const error = failed(await client.call('run_command', { command: 'true', timeout: 'canary-value' }), 'invalid_argument');
    assert.equal(error.field, 'timeout');
    assert.ok(!JSON.stringify(error).includes('canary-value'));
    assert.equal(failed(await client.call('run_command', { command: 'true', colour: 1 }), 'invalid_argument').field, 'colour');
    assert.equal(failed(await client.call('create_sandbox', { provider: 'nobody' }), 'invalid_argument').field, 'provider');
  });
  await it(named('lists no sandbox and creates none by looking'), async () => {
    assert.deepEqual(worked(await client.call('list_sandboxes', {})).sandboxes, []);
  });
  await it(named('refuses a tool that is not there with a JSON-RPC error'), async () => {
    await assert.rejects(client.call('no_such_tool', {}), (error) => error.code === -32602);
  });
}

async function commandsAndFiles(client) {
  const named = (text) => `${client.name}: ${text}`;
  let sandboxId;
  await it(named('creates a sandbox'), async () => {
    const made = worked(await client.call('create_sandbox', { envs: { GREETING: 'hullo' } }));
    sandboxId = made.sandbox_id;
    assert.match(sandboxId, /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/);
    assert.equal(made.template, 'base');
    assert.equal(made.network, 'none');
    assert.equal(made.workdir, '/home/user');
    assert.equal(made.url, null);
    assert.match(made.end_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
    const metadata = worked(await client.call('get_sandbox', {}));
    assert.deepEqual(Object.keys(metadata).sort(), METADATA);
    assert.equal(metadata.sandbox_id, sandboxId);
    assert.equal(metadata.status, 'running');
  });
  await it(named('runs a command'), async () => {
    const ran = worked(await client.call('run_command', { command: 'echo hi; echo $GREETING; pwd; echo odd >&2' }));
    assert.equal(ran.stdout, 'hi\nhullo\n/home/user\n');
    assert.equal(ran.stderr, 'odd\n');
    assert.equal(ran.exit_code, 0);
    assert.equal(ran.timed_out, false);
    assert.equal(ran.sandbox_id, sandboxId);
  });
  await it(named('takes a non-zero exit and a timeout for results'), async () => {
    assert.equal(worked(await client.call('run_command', { command: 'exit 3' })).exit_code, 3);
    const late = worked(await client.call('run_command', { command: 'echo first; sleep 20', timeout: 1 }));
    assert.equal(late.timed_out, true);
    assert.equal(late.exit_code, null);
    assert.equal(late.stdout, 'first\n');
    assert.match(late.note, /start_background_task/);
  });
  await it(named('writes, reads and lists files'), async () => {
    const content = 'první řádek\nsecond 😀\n\n';
    const wrote = worked(await client.call('write_file', { path: 'notes/a b.txt', content }));
    assert.equal(wrote.bytes_written, Buffer.byteLength(content));
    const read = worked(await client.call('read_file', { path: '/home/user/notes/a b.txt' }));
    assert.equal(read.content, content);
    assert.equal(read.size, Buffer.byteLength(content));
    const listed = worked(await client.call('list_files', { path: 'notes' }));
    assert.deepEqual(listed.files.map((file) => [file.name, file.type, file.size]), [['a b.txt', 'file', Buffer.byteLength(content)]]);
    assert.equal(listed.total, 1);
    failed(await client.call('read_file', { path: 'notes/none' }), 'file_not_found');
    failed(await client.call('read_file', { path: 'notes' }), 'is_directory');
  });
  await it(named('moves bytes that are no text'), async () => {
    const bytes = Buffer.from([0, 255, 254, 10, 13, 0, 128]);
    const up = worked(await client.call('upload_file', { path: 'b.bin', content_base64: bytes.toString('base64') }));
    assert.equal(up.size, 7);
    const down = worked(await client.call('download_file', { path: 'b.bin' }));
    assert.deepEqual(Buffer.from(down.content_base64, 'base64'), bytes);
    assert.equal(down.next_offset, null);
    assert.equal(down.sha256, up.sha256);
    failed(await client.call('read_file', { path: 'b.bin' }), 'not_text');
  });
  await it(named('runs Python'), async () => {
    const ran = worked(await client.call('run_code', { code: 'import json\nprint(json.dumps({"n": 6 * 7}))' }));
    assert.equal(ran.stdout, '{"n": 42}\n');
    assert.equal(ran.exit_code, 0);
    assert.deepEqual(ran.output_files, []);
  });
  return sandboxId;
}

async function longWork(client) {
  const named = (text) => `${client.name}: ${text}`;
  await it(named('runs a background task'), async () => {
    const started = worked(await client.call('start_background_task', { command: 'echo one; sleep 0.3; echo two; exit 4' }));
    assert.match(started.task_id, /^bt_[A-Za-z0-9_-]{32,}$/);
    assert.equal(started.status, 'running');
    let task;
    for (let i = 0; i < 20 && task?.status !== 'failed'; i += 1) {
      task = worked(await client.call('get_background_task', { task_id: started.task_id, wait: 5 }));
    }
    assert.equal(task.status, 'failed');
    assert.equal(task.exit_code, 4);
    assert.equal(task.stdout, 'one\ntwo\n');
    const { tasks } = worked(await client.call('get_background_task', {}));
    assert.equal(tasks[0].task_id, started.task_id);
  });
  await it(named('cancels a background task'), async () => {
    const { task_id } = worked(await client.call('start_background_task', { command: 'sleep 600' }));
    assert.equal(worked(await client.call('cancel_background_task', { task_id })).status, 'cancelled');
    assert.equal(worked(await client.call('get_background_task', { task_id })).status, 'cancelled');
  });
  await it(named('reports progress with the newest line'), async () => {
    const seen = [];
    const command = 'for i in 1 2 3 4; do echo line $i; sleep 0.3; done';
    worked(await client.call('run_command', { command }, { onprogress: (progress) => seen.push(progress) }));
    assert.ok(seen.length >= 2, `${seen.length} notifications`);
    assert.ok(seen.every((now, i) => i === 0 || now.progress > seen[i - 1].progress), JSON.stringify(seen));
    assert.ok(seen.some((now) => /^line \d$/.test(now.message)), JSON.stringify(seen));
  });
  await it(named('runs commands side by side and answers meanwhile'), async () => {
    const start = performance.now();
    const slow = [1, 2, 3].map((n) => client.call('run_command', { command: `sleep 1; echo ${n}` }));
    const quick = worked(await client.call('get_sandbox', {}));
    assert.ok(performance.now() - start < 800, 'get_sandbox waited for a command');
    assert.equal(quick.status, 'running');
    const done = (await Promise.all(slow)).map((result) => worked(result).stdout);
    assert.deepEqual(done, ['1\n', '2\n', '3\n']);
    assert.ok(performance.now() - start < 2500, 'the commands waited for each other');
  });
  await it(named('stops a cancelled command and stays usable'), async () => {
    const controller = new AbortController();
    const call = client.call('run_command', { command: 'exec -a canary-sleep sleep 333' }, { signal: controller.signal });
    await sleep(500);
    controller.abort();
    await assert.rejects(within(2000, call));
    await sleep(1000);
    const look = 'cat /proc/[0-9]*/cmdline | tr "\\0" "\\n" | grep -cx 33[3]; true';
    const left = worked(await client.call('run_command', { command: look }));
    assert.equal(left.stdout.trim(), '0');
  });
}

async function theEnd(client, home, sandboxId) {
  const named = (text) => `${client.name}: ${text}`;
  await it(named('kills the sandbox, once and again'), async () => {
    const killed = worked(await client.call('kill_sandbox', { sandbox_id: sandboxId }));
    assert.deepEqual([killed.success, killed.existed, killed.sandbox_id], [true, true, sandboxId]);
    assert.equal(worked(await client.call('kill_sandbox', { sandbox_id: sandboxId })).existed, false);
    assert.deepEqual(worked(await client.call('list_sandboxes', {})).sandboxes, []);
  });
  let engineTree = [];
  await it(named('creates one by itself for a command'), async () => {
    const ran = worked(await client.call('run_command', { command: 'echo again' }));
    assert.equal(ran.created, true);
    assert.notEqual(ran.sandbox_id, sandboxId);
    const engines = processesOf(home).filter((pid) => pid !== client.pid());
    assert.ok(engines.length >= 1, 'no engine runs');
    engineTree = engines.flatMap(descendants);
    assert.ok(engineTree.length >= 2, 'no sandbox runs');
  });
  await it(named('ends within 2 s of close, and its sandboxes with it'), async () => {
    const pid = client.pid();
    assert.ok(isAlive(pid));
    await client.close();
    const took = await goneAfter(pid, 2000);
    assert.notEqual(took, null, 'the server still lives');
    await sleep(500);
    assert.deepEqual(describe(engineTree.filter(isAlive)), [], 'processes of the sandbox still live');
  });
  await it(named('leaves nothing once the engine is stopped'), async () => {
    assert.equal(removeHome(home), 0);
    assert.deepEqual(await leftOf(home), []);
  });
}

/** All cases, in order, for one connected client; closes it and removes the home. */
export async function runContract(client, home) {
  await beforeAnySandbox(client);
  const sandboxId = await commandsAndFiles(client);
  if (sandboxId) await longWork(client);
  else skip(`${client.name}: background tasks, progress, cancellation`, 'no sandbox could be created');
  await theEnd(client, home, sandboxId ?? 'none');
}

// timeout: 240
// schema.mjs - every message that the server sends in a long session, in each revision, against the official JSON schema of
// that revision. The schemas are not part of the project: they are read from beside the checkout where they are.
import Ajv from 'ajv';
import Ajv2020 from 'ajv/dist/2020.js';
import fs from 'node:fs';
import path from 'node:path';

import { assert, finish, it, skip, sleep, within } from './support/cases.mjs';
import { RawClient } from './support/raw.mjs';
import { leftOf, makeHome, parameters, removeHome, root } from './support/server.mjs';

const REVISIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'];
const SCHEMAS = path.join(root, '../shared/data/mcp');
const RESULTS = {
  initialize: 'InitializeResult',
  'server/discover': 'DiscoverResult',
  ping: 'EmptyResult',
  'logging/setLevel': 'EmptyResult',
  'tools/list': 'ListToolsResult',
  'tools/call': 'CallToolResult',
};
// What a revision must not show, since it is newer: the first revision that has the field.
const TOOL_FIELDS = { annotations: '2025-03-26', title: '2025-06-18', outputSchema: '2025-06-18' };

/** Validators of one revision by the names of its definitions; null without the schema file. */
function loadSchema(revision) {
  const file = path.join(SCHEMAS, `schema-${revision}.json`);
  if (!fs.existsSync(file)) return null;
  const schema = JSON.parse(fs.readFileSync(file, 'utf8'));
  const options = { strict: false, validateFormats: false, allErrors: false };
  const ajv = schema.$defs ? new Ajv2020(options) : new Ajv(options);
  ajv.addSchema(schema, 'mcp');
  const names = new Set(Object.keys(schema.$defs ?? schema.definitions));
  return {
    has: (name) => names.has(name),
    check(name, value) {
      const validate = ajv.getSchema(`mcp#/${schema.$defs ? '$defs' : 'definitions'}/${name}`);
      assert.ok(validate(value), `${name}: ${ajv.errorsText(validate.errors)}: ${JSON.stringify(value).slice(0, 500)}`);
    },
  };
}

/** One message of the server against the schema. An error with a null id is the protocol's own exception. */
function checkMessage(schema, { message, line, method }) {
  assert.notEqual(message, null, `not JSON: ${line.slice(0, 300)}`);
  assert.equal(message.jsonrpc, '2.0');
  if (message.error) {
    if (message.id === null) return;
    schema.check(schema.has('JSONRPCErrorResponse') ? 'JSONRPCErrorResponse' : 'JSONRPCError', message);
  } else if (message.method) {
    schema.check('ServerNotification', message);
  } else {
    assert.ok(RESULTS[method], `an answer nobody asked for: ${line.slice(0, 300)}`);
    schema.check(RESULTS[method], message.result);
  }
  schema.check('JSONRPCMessage', message);
}

const TOOL_CALLS = [
  ['get_sandbox', {}],
  ['run_command', { command: 'true', timeout: 'x' }],
  ['run_command', { command: 'true', timeout: null, unknown: [1, { a: 2 }] }],
  ['list_sandboxes', {}],
  ['create_sandbox', { timeout: 600 }],
  ['get_sandbox', {}],
  ['run_command', { command: 'echo hi; printf "\\377\\0é" ; exit 3' }],
  ['run_command', { command: 'yes | head -c 100000' }],
  ['run_command', { command: 'sleep 5', timeout: 1 }],
  ['run_code', { code: 'print(1)' }],
  ['run_code', { code: 'x', language: 'r' }],
  ['write_file', { path: 'a', content: 'é\u2028\n' }],
  ['read_file', { path: 'a' }],
  ['read_file', { path: 'none' }],
  ['list_files', {}],
  ['upload_file', { path: 'b', content_base64: 'AAECAw==' }],
  ['download_file', { path: 'b' }],
  ['set_sandbox_timeout', { timeout: 900 }],
  ['start_background_task', { command: 'echo out; sleep 30' }],
  ['get_background_task', {}],
  ['get_background_task', { task_id: 'bt_00000000000000000000000000000000' }],
  ['kill_sandbox', {}],
  ['kill_sandbox', { sandbox_id: 'never-was' }],
];

// Lines that get the protocol's errors, or silence; the server must serve on.
const BAD_LINES = [
  'no json', '[]', '{"jsonrpc":"2.0","id":1e400,"method":"ping"}', '{"jsonrpc":"2.0","id":null,"method":"ping"}',
  '{"jsonrpc":"2.0","id":"w","method":"no/such/method"}', '{"jsonrpc":"2.0","id":"x","method":"tools/call","params":[]}',
  '{"jsonrpc":"2.0","id":"y","method":"tools/call","params":{"name":7}}', '{"jsonrpc":"2.0","method":"no/such/notification"}',
  '{"jsonrpc":"2.0","id":"z","method":"tools/list","params":{"cursor":"no-such-cursor"}}',
];

/** The scripted session; returns what the server sent. */
async function session(revision, home) {
  const client = new RawClient(parameters(home), revision);
  const isModern = revision >= '2026';
  try {
    const opened = await client.open();
    assert.ok(opened.result, JSON.stringify(opened.error));
    if (!isModern) {
      assert.equal(opened.result.protocolVersion, revision);
      await client.request('ping');
      await client.request('logging/setLevel', { level: 'debug' });
    }
    const listed = await client.request('tools/list', {});
    for (const line of BAD_LINES) client.sendLine(line);
    for (const [name, args] of TOOL_CALLS) await client.call(name, args);
    await client.call('run_command', { command: 'for i in 1 2 3; do echo $i; sleep 0.3; done' }, { meta: { progressToken: 0 } });
    client.call('run_command', { command: 'sleep 60' }, { id: 'cancelled' }).catch(() => {});
    await sleep(200);
    client.notify('notifications/cancelled', { requestId: 'cancelled', reason: 'enough' });
    await client.call('get_sandbox', {});
    const ended = await within(3000, client.end(), 'the end');
    assert.deepEqual(ended, { code: 0, signal: null });
    return { received: client.received, tools: listed.result.tools };
  } finally {
    client.kill();
  }
}

function checkToolFields(revision, tools) {
  for (const [field, since] of Object.entries(TOOL_FIELDS)) {
    assert.ok(tools.every((tool) => (field in tool) === (revision >= since)), `${field} in ${revision}`);
  }
}

/** structuredContent against the outputSchema that the server itself declares for the tool. */
function checkStructured(tools, received) {
  const ajv = new Ajv2020({ strict: true, strictRequired: false, strictTypes: false, validateFormats: false });
  const validators = new Map();
  for (const tool of tools) {
    ajv.compile(tool.inputSchema);
    validators.set(tool.name, ajv.compile(tool.outputSchema));
  }
  const calls = received.filter(({ tool, message }) => tool && message.result);
  assert.ok(calls.length >= TOOL_CALLS.length);
  for (const { tool, message: { result } } of calls) {
    const validate = validators.get(tool);
    if (result.isError) assert.equal(result.structuredContent, undefined);
    else assert.ok(validate(result.structuredContent), `${tool}: ${ajv.errorsText(validate.errors)}`);
  }
}

for (const revision of REVISIONS) {
  const schema = loadSchema(revision);
  const home = makeHome();
  let done = null;
  await it(`${revision}: a whole session is served`, async () => { done = await session(revision, home); });
  if (done) {
    await it(`${revision}: the tools have the fields of the revision`, () => checkToolFields(revision, done.tools));
    if (revision >= '2025-06-18') {
      await it(`${revision}: results have the form their tool declares`, () => checkStructured(done.tools, done.received));
    }
    await it(`${revision}: no message follows a cancelled request`, () => {
      assert.ok(!done.received.some(({ message }) => message?.id === 'cancelled'));
    });
    if (!schema) skip(`${revision}: every message is valid`, `there is no schema beside the checkout`);
    else {
      await it(`${revision}: every one of ${done.received.length} messages is valid`, () => {
        for (const received of done.received) checkMessage(schema, received);
      });
    }
  }
  await it(`${revision}: nothing is left once the engine is stopped`, async () => {
    assert.equal(removeHome(home), 0);
    assert.deepEqual(await leftOf(home), []);
  });
}
finish();

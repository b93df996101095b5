// timeout: 240
// http_clients.mjs - clients that nobody here wrote, over HTTP: npm's client 2.x in its three modes, sdk 1.x, the inspector and
// mcp-remote, all beside each other at one server.
import { spawn } from 'node:child_process';
import path from 'node:path';

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

import { assert, finish, it, sleep } from './support/cases.mjs';
import { TOOLS, failed, worked } from './support/contract.mjs';
import { leftOf, makeHome, parameters, peers, removeHome } from './support/server.mjs';

const home = makeHome();
const { command, args, env } = parameters(home, ['serve', '--http', '127.0.0.1:0']);
const server = spawn(command, args, { env, cwd: home, stdio: ['ignore', 'ignore', 'pipe'] });
let said = '';
server.stderr.setEncoding('utf8').on('data', (text) => { said += text; });
for (let i = 0; i < 500 && !/listening on \S+/.test(said); i += 1) await sleep(20);
const url = said.match(/listening on (\S+)/)[1];

/** What every client must be able to do; `client` is an adapter with list, call(name, args, options) and close. */
async function runCases(name, client) {
  await it(`${name}: lists the tools`, async () => {
    assert.deepEqual((await client.list()).map((tool) => tool.name).sort(), TOOLS);
  });
  await it(`${name}: works in a sandbox of its own, and hears of progress`, async () => {
    worked(await client.call('write_file', { path: 'who', content: name }));
    assert.equal(worked(await client.call('read_file', { path: 'who' })).content, name);
    const heard = [];
    const ran = worked(await client.call('run_command', { command: 'for i in 1 2 3; do echo step $i; sleep 0.3; done' },
      { onprogress: (progress) => heard.push(progress.message) }));
    assert.equal(ran.stdout, 'step 1\nstep 2\nstep 3\n');
    assert.ok(heard.includes('step 1'), JSON.stringify(heard));
  });
  await it(`${name}: is told of errors as results and as errors`, async () => {
    failed(await client.call('read_file', { path: 'nowhere' }), 'file_not_found');
    await assert.rejects(client.call('no_such_tool', {}));
  });
  await it(`${name}: takes a call back and goes on`, async () => {
    const control = new AbortController();
    setTimeout(() => control.abort(), 500);
    const from = performance.now();
    await assert.rejects(client.call('run_command', { command: 'sleep 30' }, { signal: control.signal }));
    assert.ok(performance.now() - from < 5000);
    assert.equal(worked(await client.call('run_command', { command: 'echo on' })).stdout, 'on\n');
  });
}

const clients = [];
for (const [name, mode, revision] of [
  ['http client 2.x legacy', 'legacy', '2025-11-25'], ['http client 2.x auto', 'auto', '2026-07-28'],
  ['http client 2.x pinned', { pin: '2026-07-28' }, '2026-07-28'],
]) {
  const client = new Client({ name: 'demilune-peer', version: '1' }, { versionNegotiation: { mode } });
  const isConnected = await it(`${name}: connects`, async () => {
    await client.connect(new StreamableHTTPClientTransport(new URL(url)), { timeout: 5000 });
    assert.equal(client.getNegotiatedProtocolVersion(), revision);
  });
  if (!isConnected) continue;
  clients.push(client);
  await runCases(name, {
    list: async () => (await client.listTools()).tools,
    call: (tool, given, options) => client.callTool({ name: tool, arguments: given }, options),
  });
}

const old = new OldClient({ name: 'demilune-peer', version: '1' });
const oldTransport = new OldTransport(new URL(url));
if (await it('http sdk 1.x: connects', () => old.connect(oldTransport, { timeout: 5000 }))) {
  await runCases('http sdk 1.x', {
    list: async () => (await old.listTools()).tools,
    call: (tool, given, options) => old.callTool({ name: tool, arguments: given }, undefined, options),
  });
  await it('http sdk 1.x: ends its session, and the session is over', async () => {
    const { sessionId } = oldTransport;
    await oldTransport.terminateSession();
    const answer = await fetch(url, {
      method: 'POST', body: '{"jsonrpc":"2.0","id":1,"method":"ping"}',
      headers: { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'Mcp-Session-Id': sessionId },
    });
    assert.equal(answer.status, 404);
    await old.close();
  });
}
for (const client of clients) await client.close();

/** Runs a Node program to its end, with `input` on its stdin until `isDone(stdout)`. */
function node(file, words, input = '', isDone = () => false) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [file, ...words], { env: { ...env, HOME: home }, cwd: home });
    const out = { stdout: '', stderr: '' };
    const limit = setTimeout(() => child.kill('SIGKILL'), 30_000);
    for (const name of ['stdout', 'stderr']) {
      child[name].setEncoding('utf8').on('data', (text) => {
        out[name] += text;
        if (name === 'stdout' && isDone(out.stdout)) child.stdin.end(() => child.kill('SIGTERM'));
      });
    }
    child.on('error', reject);
    child.on('close', (code) => {
      clearTimeout(limit);
      resolve({ code, ...out });
    });
    child.stdin.write(input);
    if (!input) child.stdin.end();
  });
}

const inspector = path.join(peers, 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js');
for (const era of ['legacy', 'modern']) {
  await it(`http inspector ${era}: lists and calls`, async () => {
    const common = ['--cli', url, '--transport', 'http', '--format', 'json', '-q', '--protocol-era', era];
    const listed = await node(inspector, [...common, '--method', 'tools/list']);
    assert.equal(listed.code, 0, listed.stdout + listed.stderr);
    const called = await node(inspector, [...common, '--method', 'tools/call', '--tool-name', 'run_command', '--tool-arg', 'command=echo hi']);
    assert.equal(called.code, 0, called.stdout + called.stderr);
    const value = JSON.parse(called.stdout);
    assert.equal((value.result ?? value).structuredContent.stdout, 'hi\n');
  });
}

await it('mcp-remote: brings a client on stdio to the server', async () => {
  const lines = [
    { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'peer', version: '1' } } },
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'run_command', arguments: { command: 'echo remote' } } },
  ];
  const answer = await node(path.join(peers, 'node_modules/mcp-remote/dist/proxy.js'), [url, '--allow-http', '--transport', 'http-only'],
    lines.map((line) => `${JSON.stringify(line)}\n`).join(''), (text) => text.includes('"id":2'));
  const messages = answer.stdout.trim().split('\n').map((line) => JSON.parse(line));
  const done = messages.find((message) => message.id === 2);
  assert.equal(done?.result?.structuredContent?.stdout, 'remote\n', answer.stdout + answer.stderr);
});

await it('http: the server ends when it is told to, and leaves nothing', async () => {
  const code = new Promise((resolve) => { server.once('exit', resolve); });
  server.kill('SIGTERM');
  assert.equal(await code, 0);
  assert.equal(removeHome(home), 0);
  assert.deepEqual(await leftOf(home), []);
});
finish();

// timeout: 120
// engine_sdk.mjs - the official SDKs against our engine over TCP, as broad as they go; and what it must not serve.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';

import { assert, finish, it, within } from '../peers/support/cases.mjs';
import { goneAfter, leftOf, makeHome, parameters, removeHome } from '../peers/support/server.mjs';
import { runInterpreter, runSdk } from './support/sdk_cases.mjs';
import { require } from './support/wire.mjs';

const older = require('e2b-2-20');
const newest = require('e2b');
const home = makeHome();
const key = `e2b_${randomBytes(20).toString('hex')}`;
const keyFile = path.join(home, 'key');
fs.writeFileSync(keyFile, `${key}\n`, { mode: 0o600 });

/** Starts the engine; resolves with its child and the URL that it prints. */
async function startEngine() {
  const { command, args, env } = parameters(home, ['engine', '--listen', '127.0.0.1:0', '--key-file', keyFile]);
  const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  const listens = new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (more) => {
        text += more;
        const found = /127\.0\.0\.1:(\d+)/.exec(text);
        if (found) resolve(`http://127.0.0.1:${found[1]}`);
      });
    }
    child.once('close', (code) => reject(new Error(`the engine ended with ${code}: ${text}`)));
  });
  return { child, url: await within(10_000, listens, 'the address of the engine') };
}

/** A request as raw as it gets: { status, headers, text }. */
function ask(url, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const req = http.request(url, { method, headers, setHost: headers.host === undefined }, (res) => {
      let text = '';
      res
        .setEncoding('utf8')
        .on('data', (more) => {
          text += more;
        })
        .on('end', () => resolve({ status: res.statusCode, headers: res.headers, text }));
    });
    req.on('error', reject).end(body);
  });
}

const { child, url } = await startEngine();
Object.assign(process.env, { E2B_API_KEY: key, E2B_API_URL: url, E2B_SANDBOX_URL: url });
const opts = { apiKey: key, apiUrl: url, sandboxUrl: url };
// One user, without root; terminals are not served.
const without = ['root', 'pty'];

await runSdk({ name: 'e2b 2.51.0', sdk: newest, opts, without });
await runSdk({ name: 'e2b 2.20.1', sdk: older, opts, without });
await runInterpreter({ name: 'code-interpreter 2.8.0', sdk: require('@e2b/code-interpreter'), opts });

await it('a key is always asked for', async () => {
  for (const [method, route] of [
    ['GET', '/v2/sandboxes'],
    ['POST', '/sandboxes'],
    ['GET', '/demilune'],
    ['POST', '/demilune/stop'],
  ]) {
    for (const headers of [{}, { 'x-api-key': '' }, { 'x-api-key': `${key}x` }, { 'x-api-key': key.slice(0, -1) }]) {
      const { status } = await ask(`${url}${route}`, { method, headers });
      assert.equal(status, 401, `${method} ${route} ${JSON.stringify(headers)}`);
    }
  }
});

await it('an access token is always asked for, the right one', async () => {
  const one = await newest.Sandbox.create({ ...opts, timeoutMs: 60_000 });
  const other = await newest.Sandbox.create({ ...opts, timeoutMs: 60_000 });
  const answer = JSON.parse((await ask(`${url}/sandboxes/${other.sandboxId}`, { headers: { 'x-api-key': key } })).text);
  assert.ok(answer.envdAccessToken.length >= 32);
  const calls = [
    ['GET', '/files?path=/etc/passwd'],
    ['POST', '/process.Process/List'],
    ['POST', '/filesystem.Filesystem/Stat'],
    ['POST', '/process.Process/Start'],
  ];
  for (const [method, route] of calls) {
    for (const token of [undefined, '', 'x', key, answer.envdAccessToken]) {
      const headers = {
        'e2b-sandbox-id': one.sandboxId,
        'e2b-sandbox-port': '49983',
        ...(token !== undefined && { 'x-access-token': token }),
      };
      const { status, text } = await ask(`${url}${route}`, { method, headers });
      assert.equal(status, 401, `${method} ${route} with ${token}: ${status} ${text}`);
    }
  }
  await Promise.all([one.kill(), other.kill()]);
});

await it('pages of a browser and other names for this machine are refused', async () => {
  const headers = { 'x-api-key': key };
  assert.equal((await ask(`${url}/v2/sandboxes`, { headers })).status, 200);
  for (const wrong of [
    { origin: 'http://evil.example' },
    { origin: 'null' },
    { origin: url },
    { host: 'evil.example' },
    { host: 'evil.example:80' },
  ]) {
    const { status } = await ask(`${url}/v2/sandboxes`, { headers: { ...headers, ...wrong } });
    assert.ok([400, 403].includes(status), `${JSON.stringify(wrong)}: ${status}`);
  }
});

await it('what is not served says so', async () => {
  const sandbox = await newest.Sandbox.create({ ...opts, timeoutMs: 60_000 });
  const { sandboxId: id } = sandbox;
  const headers = { 'x-api-key': key, 'content-type': 'application/json' };
  const calls = [
    ['POST', `/sandboxes/${id}/snapshots`],
    ['GET', '/snapshots'],
    ['POST', `/sandboxes/${id}/fork`],
    ['PUT', `/sandboxes/${id}/network`],
    ['GET', `/v2/sandboxes/${id}/logs`],
    ['GET', `/sandboxes/${id}/logs`],
    ['GET', '/templates'],
    ['GET', '/templates/aliases/base'],
  ];
  for (const [method, route] of calls) {
    const { status, text } = await ask(`${url}${route}`, { method, headers, body: method === 'GET' ? undefined : '{}' });
    assert.equal(status, 501, `${method} ${route}: ${status} ${text}`);
    assert.equal(JSON.parse(text).error_code, 'unimplemented', route);
  }
  await assert.rejects(sandbox.pty.create({ cols: 80, rows: 24, onData() {} }), /unimplemented/i);
  await sandbox.kill();
});

await it('the engine ends as it is told, with its sandboxes', async () => {
  await newest.Sandbox.create({ ...opts, timeoutMs: 60_000 });
  child.kill('SIGTERM');
  assert.notEqual(await goneAfter(child.pid, 5000), null);
  assert.equal(removeHome(home), 0);
  assert.deepEqual(await leftOf(home), []);
});
finish();

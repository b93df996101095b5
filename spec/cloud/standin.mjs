// standin.mjs - the stand-in as E2B's public description and the official runtime's recorded answers have it, where the SDK
// alone would not notice.
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { assert, finish, it } from '../peers/support/cases.mjs';
import { frames } from './support/recorder.mjs';
import { start } from './support/server.mjs';

const server = await start();
const key = { 'x-api-key': server.key };

function ask(method, path, headers = {}, body = undefined) {
  return new Promise((resolve, reject) => {
    const req = http.request(server.url + path, { method, headers }, (res) => {
      const chunks = [];
      res
        .on('data', (chunk) => chunks.push(chunk))
        .on('error', reject)
        .on('end', () => {
          const bytes = Buffer.concat(chunks);
          resolve({ status: res.statusCode, headers: res.headers, bytes, text: bytes.toString() });
        });
    });
    req.on('error', reject).end(body);
  });
}

const post = (path, headers, value) =>
  ask('POST', path, { 'content-type': 'application/json', ...headers }, JSON.stringify(value));

async function make(body = {}, path = '/sandboxes') {
  const { status, text } = await post(path, key, { templateID: 'base', timeout: 60, secure: true, ...body });
  assert.equal(status, 201, text);
  return JSON.parse(text);
}

function plane(sandbox, more = {}) {
  return {
    'e2b-sandbox-id': sandbox.sandboxID,
    'e2b-sandbox-port': '49983',
    'x-access-token': sandbox.envdAccessToken,
    ...more,
  };
}

function framed(value) {
  const text = Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(text.length, 1);
  return Buffer.concat([head, text]);
}

function run(sandbox, command, more = {}, headers = {}) {
  const message = { process: { cmd: '/bin/bash', args: ['-l', '-c', command], ...more }, stdin: false };
  return ask(
    'POST',
    '/process.Process/Start',
    plane(sandbox, { 'content-type': 'application/connect+json', 'connect-protocol-version': '1', ...headers }),
    framed(message),
  );
}

await it('asks for the key, and for the right token', async () => {
  for (const headers of [{}, { 'x-api-key': `${server.key}0` }]) {
    const { status, text } = await ask('GET', '/v2/sandboxes', headers);
    assert.equal(status, 401);
    assert.equal(JSON.parse(text).code, 401);
  }
  const [one, other] = [await make(), await make()];
  assert.notEqual(one.envdAccessToken, other.envdAccessToken);
  for (const token of ['', 'x', other.envdAccessToken, server.key]) {
    for (const path of ['/process.Process/List', '/files?path=/etc/passwd']) {
      const { status, text } = await post(path, { ...plane(one), 'x-access-token': token }, {});
      assert.deepEqual([status, JSON.parse(text).code], [401, 401], path);
    }
  }
  assert.equal((await make({ secure: false })).envdAccessToken, undefined);
  assert.ok((await make({ secure: false }, '/v2/sandboxes')).envdAccessToken);
});

await it('frames a stream as the official runtime does', async () => {
  const sandbox = await make({ envVars: { FOO: 'bar' } });
  const { status, headers, bytes } = await run(sandbox, 'echo $FOO; exit 3');
  assert.deepEqual(
    [status, headers['content-type'], headers['transfer-encoding']],
    [200, 'application/connect+json', 'chunked'],
  );
  const [began, out, ended, end] = frames(bytes);
  assert.ok(began[1].event.start.pid > 0);
  assert.deepEqual(out, [0, { event: { data: { stdout: 'YmFyCg==' } } }]);
  assert.deepEqual(ended, [
    0,
    { event: { end: { exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' } } },
  ]);
  assert.deepEqual(end, [2, {}]);
  assert.deepEqual(frames((await run(sandbox, 'true')).bytes)[1], [
    0,
    { event: { end: { exited: true, status: 'exit status 0' } } },
  ]);
  assert.deepEqual(
    frames((await run(sandbox, 'true', { cwd: '/none' })).bytes).map(([flags, value]) => [flags, value.error.code]),
    [[2, 'invalid_argument']],
  );
  const late = frames((await run(sandbox, 'exec sleep 9', {}, { 'connect-timeout-ms': '300' })).bytes).at(-1);
  assert.deepEqual([late[0], late[1].error.code], [2, 'deadline_exceeded']);
  const killed = frames((await run(sandbox, 'kill -9 $$')).bytes)[1][1].event.end;
  assert.deepEqual(killed, { exitCode: -1, status: 'signal: killed', error: 'signal: killed' });
});

await it('refuses what is no call as the official runtime does', async () => {
  const sandbox = await make();
  assert.equal((await post('/process.Process/Start', plane(sandbox), {})).status, 415);
  const unknown = await post('/process.Process/Nope', plane(sandbox), {});
  assert.deepEqual([unknown.status, unknown.text], [404, '']);
  const gone = await post('/process.Process/SendSignal', plane(sandbox), { process: { pid: 9999 }, signal: 'SIGNAL_SIGKILL' });
  assert.deepEqual([gone.status, JSON.parse(gone.text).code], [404, 'not_found']);
});

await it('decodes a metadata filter three times', async () => {
  await make({ metadata: { user: 'a b&c=%41' } });
  const filter = `user=${encodeURIComponent(encodeURIComponent('a b&c=%41'))}`;
  const count = async (query) => JSON.parse((await ask('GET', `/v2/sandboxes?metadata=${query}`, key)).text).length;
  assert.equal(await count(encodeURIComponent(filter)), 1);
  assert.equal(await count(encodeURIComponent('user=a b&c=%41')), 0);
  await make({ metadata: { plain: 'abc' } });
  assert.equal(await count('plain%3Dabc'), 1);
});

await it('pages by a token, newest first', async () => {
  const made = [];
  for (let i = 0; i < 5; i += 1) {
    made.unshift((await make({ metadata: { page: 'yes' } })).sandboxID);
    await sleep(3);
  }
  let token = '';
  const seen = [];
  do {
    const { headers, text } = await ask(
      'GET',
      `/v2/sandboxes?limit=2&metadata=page%3Dyes${token && `&nextToken=${token}`}`,
      key,
    );
    seen.push(...JSON.parse(text).map((one) => one.sandboxID));
    token = headers['x-next-token'];
  } while (token);
  assert.deepEqual(seen, made);
  assert.equal((await ask('GET', '/v2/sandboxes?limit=101', key)).status, 400);
});

await it('answers for a sandbox that is not there as the proxy does', async () => {
  const sandbox = await make();
  assert.equal((await ask('DELETE', `/sandboxes/${sandbox.sandboxID}`, key)).status, 204);
  assert.equal((await ask('DELETE', `/sandboxes/${sandbox.sandboxID}`, key)).status, 404);
  const { status, text } = await ask('GET', '/health', plane(sandbox));
  assert.equal(status, 502);
  assert.deepEqual(JSON.parse(text), { sandboxId: sandbox.sandboxID, message: 'The sandbox was not found', code: 502 });
  const closed = await ask('GET', '/', plane(await make(), { 'e2b-sandbox-port': '8080' }));
  assert.deepEqual([closed.status, JSON.parse(closed.text).port], [502, 8080]);
});

await it('an old envd takes forms alone, and asks for a user', async () => {
  server.options.envdVersion = '0.3.5';
  const sandbox = await make();
  server.options.envdVersion = undefined;
  const raw = await ask(
    'POST',
    '/files?path=/tmp/x&username=user',
    plane(sandbox, { 'content-type': 'application/octet-stream' }),
    'x',
  );
  assert.equal(raw.status, 400);
  assert.equal((await ask('GET', '/files?path=/etc/passwd', plane(sandbox))).status, 401);
  assert.equal((await ask('GET', '/files?path=/etc/passwd&username=user', plane(sandbox))).status, 200);
  assert.equal(frames((await run(sandbox, 'true')).bytes)[0][1].error.code, 'unauthenticated');
});

await it('its faults are what they say', async () => {
  const list = () => ask('GET', '/v2/sandboxes', key);
  for (const [fault, code] of [
    ['start', 'ECONNRESET'],
    ['head', 'ECONNRESET'],
    ['body', 'ECONNRESET'],
    ['close', 'ECONNRESET'],
  ]) {
    server.faults.add({ op: 'list', reset: fault, times: 1 });
    await assert.rejects(list(), { code }, fault);
  }
  server.faults.add({ op: 'list', skip: 1, times: 1, status: 503, headers: { 'retry-after': '1' }, body: { code: 503 } });
  assert.deepEqual([(await list()).status, (await list()).status, (await list()).status], [200, 503, 200]);
  server.faults.add({ op: 'list', times: 1, delay: 150 });
  const begun = Date.now();
  assert.equal((await list()).status, 200);
  assert.ok(Date.now() - begun >= 140);
  const count = server.ids.length;
  server.faults.add({ op: 'create', times: 1, status: 500, real: true });
  assert.equal((await post('/sandboxes', key, { templateID: 'base', timeout: 60 })).status, 500);
  assert.equal(server.ids.length, count + 1);
  const sandbox = await make();
  server.faults.add({ op: 'Start', times: 1, no_end: true });
  assert.equal(frames((await run(sandbox, 'true')).bytes).at(-1)[0], 0);
  server.faults.add({ op: 'Start', times: 1, truncate: 20 });
  await assert.rejects(run(sandbox, 'true'));
  server.faults.add({ op: 'list', times: 1, huge: 3 << 20 });
  assert.equal((await list()).bytes.length, 3 << 20);
});

await it('records what was sent', async () => {
  server.recorder.clear();
  await post('/sandboxes', key, { templateID: 'base', timeout: 60, metadata: { a: 'b' } });
  const [record] = server.recorder.requests;
  assert.deepEqual(
    [record.op, record.method, record.path, JSON.parse(Buffer.concat(record.chunks)).metadata],
    ['create', 'POST', '/sandboxes', { a: 'b' }],
  );
});

await server.close();
finish();

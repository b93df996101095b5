// timeout: 120
// network.mjs - the way to a provider: TLS, names, proxies, redirects; hosts of sandboxes as E2B has them, over TLS.
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';

import { assert, finish, it, sleep } from '../peers/support/cases.mjs';
import { Authority } from './support/certificates.mjs';
import { Home } from './support/driver.mjs';
import { start } from './support/server.mjs';

const authority = new Authority();
const DEADLINE_MS = 12_000;

/** One call with a provider of those fields must fail to connect, and say nothing of where to. */
async function failsToConnect(provider, server, words = []) {
  const home = new Home(server, { provider, key: server?.key ?? `e2b_${'a'.repeat(40)}` });
  const begun = Date.now();
  const { code, stdout, stderr } = await home.call('list_sandboxes', {});
  assert.equal(code, 1, stdout + stderr);
  assert.equal(JSON.parse(stdout).error.category, 'connection_failed', stdout);
  assert.ok(Date.now() - begun < DEADLINE_MS);
  for (const word of [...words, provider.api_url?.split('/')[2]].filter(Boolean))
    assert.ok(!(stdout + stderr).includes(word), `${word} in ${stdout}${stderr}`);
  await home.remove();
}

/** A port of this machine that nobody listens on. */
async function closedPort() {
  const listener = net.createServer();
  await new Promise((resolve) => {
    listener.listen(0, '127.0.0.1', resolve);
  });
  const { port } = listener.address();
  await new Promise((resolve) => {
    listener.close(resolve);
  });
  return port;
}

const good = authority.issue(['DNS:localhost', 'IP:127.0.0.1']);
const at = (server) => ({
  api_url: `https://127.0.0.1:${server.securePort}`,
  sandbox_url: `https://127.0.0.1:${server.securePort}`,
});

await it('TLS of an authority that is named is trusted, by HTTP/2', async () => {
  const server = await start({ tls: good });
  const home = new Home(server, { provider: { ...at(server), ca_file: authority.file } });
  const client = await home.serve();
  const ran = await client.must('run_command', { command: 'echo over TLS' });
  assert.equal(ran.stdout, 'over TLS\n');
  await client.must('write_file', { path: '/tmp/x', content: 'y'.repeat(200_000) });
  assert.equal((await client.must('download_file', { path: '/tmp/x' })).size, 200_000);
  await client.stop();
  assert.ok(
    server.recorder.requests.some((one) => one.op === 'read' && one.version === '2.0'),
    `no request by HTTP/2, but ${server.recorder.requests.map((one) => `${one.op} ${one.version}`)}`,
  );
  assert.deepEqual(server.ids, []);
  await home.remove();
  await server.close();
});

await it('what a server leaves is ended under the same authority, named as seen from its folder', async () => {
  const server = await start({ tls: good });
  const home = new Home(server, { provider: { ...at(server), ca_file: 'authority.pem' } });
  fs.copyFileSync(authority.file, path.join(home.path, 'authority.pem'));
  const before = process.cwd();
  home.file = path.basename(home.file);
  process.chdir(home.path);
  try {
    const client = await home.serve();
    await client.must('create_sandbox', {});
    server.faults.add({ op: 'kill', hang: true, times: 1 });
    await client.stop();
    for (let i = 0; i < 50 && server.ids.length > 0; i += 1) await sleep(100);
    assert.deepEqual(server.ids, []);
  } finally {
    process.chdir(before);
  }
  await home.remove();
  await server.close();
});

await it('TLS of an authority that nobody named is not', async () => {
  const server = await start({ tls: good });
  await failsToConnect(at(server), server, ['spec authority']);
  assert.equal(server.recorder.requests.length, 0);
  await server.close();
});

await it('a certificate for another name is not taken', async () => {
  const server = await start({ tls: authority.issue(['DNS:other.test']) });
  await failsToConnect({ ...at(server), ca_file: authority.file }, server, ['other.test']);
  assert.equal(server.recorder.requests.length, 0);
  await server.close();
});

await it('a certificate that is over is not taken', async () => {
  const server = await start({ tls: authority.issue(['DNS:localhost', 'IP:127.0.0.1'], 0) });
  await failsToConnect({ ...at(server), ca_file: authority.file }, server);
  assert.equal(server.recorder.requests.length, 0);
  await server.close();
});

await it('what does not speak TLS is not spoken to', async () => {
  const server = await start();
  const url = `https://127.0.0.1:${server.port}`;
  await failsToConnect({ api_url: url, sandbox_url: url }, server);
  assert.equal(server.recorder.requests.length, 0);
  await server.close();
});

await it('a name that is not there, a port that nobody listens on', async () => {
  await failsToConnect({ api_url: 'https://no-such-host.invalid', sandbox_url: 'https://no-such-host.invalid' });
  const url = `http://127.0.0.1:${await closedPort()}`;
  await failsToConnect({ api_url: url, sandbox_url: url });
});

await it('a proxy that is not there', async () => {
  const port = await closedPort();
  await failsToConnect(
    {
      api_url: 'https://api.e2b.test',
      sandbox_url: 'https://{port}-{id}.e2b.test',
      domain: 'e2b.test',
      proxy: `http://127.0.0.1:${port}`,
    },
    undefined,
    [String(port)],
  );
});

await it("sandboxes at hosts of their own, by a proxy: the key for the API's host, tokens for the sandbox's", async () => {
  const server = await start({ tls: authority.issue(['DNS:api.e2b.test', 'DNS:*.e2b.test']), proxy: true, domain: 'e2b.test' });
  const provider = {
    api_url: undefined,
    sandbox_url: undefined,
    domain: 'e2b.test',
    proxy: server.proxyUrl,
    ca_file: authority.file,
  };
  const home = new Home(server, { provider });
  const client = await home.serve();
  assert.equal((await client.must('run_command', { command: 'echo $((6 * 7))' })).stdout, '42\n');
  await client.must('write_file', { path: 'a', content: 'b' });
  const [sandbox] = server.control.sandboxes.values();
  const hosts = new Set(server.connected.map((one) => one.target));
  assert.ok(hosts.has('api.e2b.test:443'), [...hosts].join());
  assert.ok(
    [...hosts].every((host) =>
      ['api.e2b.test:443', `49983-${sandbox.sandboxID}.e2b.test:443`, 'sandbox.e2b.test:443'].includes(host),
    ),
    [...hosts].join(),
  );
  for (const one of server.recorder.requests) {
    const isControl = one.target === null;
    assert.equal(one.headers['x-api-key'], isControl ? server.key : undefined, one.op);
    assert.equal(one.headers['x-access-token'], isControl ? undefined : sandbox.token, one.op);
  }
  for (const { headers } of server.connected) {
    const said = JSON.stringify(headers);
    assert.ok(!said.includes(server.key) && !said.includes(sandbox.token), 'a secret told to the proxy');
  }
  await client.stop();
  await home.remove();
  await server.close();
});

await it('a redirect is not followed, and no key goes with it', async () => {
  const elsewhere = await start();
  const server = await start();
  const home = new Home(server);
  const client = await home.serve();
  for (const status of [301, 302, 303, 307, 308]) {
    for (const [op, ...call] of [
      ['list', 'list_sandboxes'],
      ['create', 'create_sandbox'],
      ['get', 'get_sandbox', { sandbox_id: 'iabc' }],
    ]) {
      server.faults.clear();
      server.faults.add({ op, status, headers: { location: `${elsewhere.url}/v2/sandboxes` }, body: {} });
      const { error } = await client.try(...call);
      assert.equal(error?.category, 'provider_rejected', `${status} ${op}`);
    }
  }
  await sleep(50);
  assert.equal(elsewhere.recorder.requests.length, 0);
  await client.stop();
  await home.remove();
  await server.close();
  await elsewhere.close();
});

authority.remove();
finish();

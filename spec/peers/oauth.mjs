// timeout: 240
// oauth.mjs - who may call over HTTP, as others see it: tokens that npm's jose signs, and the whole flow of
// @modelcontextprotocol/client from the first 401 to a call, over TLS too.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';

import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { generateKeyPair, SignJWT, UnsecuredJWT } from 'jose';

import { startAuthorization } from './support/authorization.mjs';
import { assert, finish, it, sleep } from './support/cases.mjs';
import { makeHome, parameters, removeHome } from './support/server.mjs';

const freePort = () => new Promise((resolve) => {
  const probe = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = probe.address();
    probe.close(() => resolve(port));
  });
});

/** Starts `demilune serve` over HTTP; resolves when it listens. */
async function serve(home, config) {
  const file = path.join(home, 'demilune.lua');
  fs.writeFileSync(file, config);
  const { command, args, env } = parameters(home, ['serve', '--config', file]);
  const child = spawn(command, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  child.stderr.on('data', (bytes) => { text += bytes; });
  for (let i = 0; i < 500 && !text.includes('listening on'); i += 1) await sleep(20);
  assert.ok(text.includes('listening on'), text);
  return {
    child,
    text: () => text,
    stop: () => new Promise((resolve) => {
      child.once('exit', resolve);
      child.kill('SIGTERM');
    }),
  };
}

const INITIALIZE = {
  jsonrpc: '2.0', id: 1, method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'peer', version: '1' } },
};

const post = (url, token, headers = {}) => fetch(url, {
  method: 'POST',
  headers: {
    'Content-Type': 'application/json', Accept: 'application/json, text/event-stream',
    ...(token ? { Authorization: `Bearer ${token}` } : {}), ...headers,
  },
  body: JSON.stringify(INITIALIZE),
});

/** What the client asks of its host: kept in memory, the browser played by a fetch. */
function makeProvider() {
  const kept = {};
  return {
    kept,
    redirectUrl: 'http://127.0.0.1:9/callback',
    clientMetadata: { client_name: 'peer', redirect_uris: ['http://127.0.0.1:9/callback'], token_endpoint_auth_method: 'none' },
    clientInformation: () => kept.client,
    saveClientInformation: (client) => { kept.client = client; },
    tokens: () => kept.tokens,
    saveTokens: (tokens) => { kept.tokens = tokens; },
    saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
    codeVerifier: () => kept.verifier,
    saveDiscoveryState: (state) => { kept.state = state; },
    discoveryState: () => kept.state,
    redirectToAuthorization: async (url) => {
      kept.asked = url;
      const response = await fetch(url, { redirect: 'manual' });
      kept.code = new URL(response.headers.get('location')).searchParams.get('code');
    },
  };
}

const home = makeHome();
const issuer = await startAuthorization();
const port = await freePort();
const url = `http://127.0.0.1:${port}/mcp`;
const server = await serve(home, `return { http = { listen = "127.0.0.1:${port}", oauth = {
  issuer = "${issuer.issuer}", audience = "${url}", jwks = "${issuer.issuer}/jwks", scopes = { "mcp" } } } }`);

for (const mode of ['legacy', 'auto', { pin: '2026-07-28' }]) {
  await it(`client 2.x ${mode.pin ?? mode}: finds the authorization server, gets a token, calls`, async () => {
    const provider = makeProvider();
    const connect = async () => {
      const client = new Client({ name: 'peer', version: '1' }, { versionNegotiation: { mode } });
      const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
      await client.connect(transport, { timeout: 5000 });
      return client;
    };
    await assert.rejects(connect(), (error) => error instanceof UnauthorizedError || /nauthorized/.test(error.message));
    assert.ok(provider.kept.code, 'it was sent to the authorization server');
    assert.equal(provider.kept.asked.searchParams.get('resource'), url);
    assert.equal(provider.kept.asked.searchParams.get('scope'), 'mcp');
    const finishing = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
    await finishing.finishAuth(provider.kept.code);
    const client = await connect();
    const result = await client.callTool({ name: 'list_sandboxes', arguments: {} });
    assert.deepEqual(result.structuredContent.sandboxes, []);
    await client.close();
  });
}

await it('takes what jose signs by each algorithm, after a rotation', async () => {
  for (const alg of ['RS256', 'PS256', 'ES256', 'EdDSA']) {
    await issuer.rotate(alg);
    // The keys are fetched again for an unknown one, and every 30 s at most: a reload says that they are old.
    server.child.kill('SIGHUP');
    await sleep(300);
    const response = await post(url, await issuer.token(url));
    assert.equal(response.status, 200, alg);
    await response.text();
  }
});

await it('refuses what is expired, of another, for another, unsigned, or signed with a public key', async () => {
  const now = Math.floor(Date.now() / 1000);
  const stranger = await generateKeyPair('EdDSA');
  const claims = { iss: issuer.issuer, aud: url, sub: 'mia', scope: 'mcp', exp: now + 60 };
  const secret = new TextEncoder().encode(JSON.stringify(issuer.key.jwk));
  const tokens = {
    expired: await issuer.token(url, { exp: now - 120 }),
    'another audience': await issuer.token(`${url}/`),
    'another issuer': await issuer.token(url, { iss: 'https://evil.example.com' }),
    'no subject': await issuer.token(url, { sub: undefined }),
    'another key': await new SignJWT(claims).setProtectedHeader({ alg: 'EdDSA', kid: issuer.key.kid }).sign(stranger.privateKey),
    unsigned: new UnsecuredJWT(claims).encode(),
    'HMAC with the public key': await new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid: issuer.key.kid }).sign(secret),
  };
  for (const [name, token] of Object.entries(tokens)) {
    const response = await post(url, token);
    assert.equal(response.status, 401, name);
    assert.match(response.headers.get('www-authenticate'), /error="invalid_token"/);
    assert.ok(!(await response.text()).includes(token));
    assert.ok(!server.text().includes(token));
  }
  issuer.scope = 'other';
  const response = await post(url, await issuer.token(url));
  assert.equal(response.status, 403);
  assert.match(response.headers.get('www-authenticate'), /error="insufficient_scope".*scope="mcp"/);
  issuer.scope = 'mcp';
});

await it('looks at no key that a token brings along', async () => {
  const before = issuer.asked.length;
  const pair = await generateKeyPair('ES256', { extractable: true });
  const token = await issuer.token(url, {}, { alg: 'ES256', kid: 'mine', privateKey: pair.privateKey }, {
    jku: `${issuer.issuer}/evil`, x5u: `${issuer.issuer}/evil`,
  });
  assert.equal((await post(url, token)).status, 401);
  assert.ok(!issuer.asked.slice(before).includes('/evil'));
});

await server.stop();
await issuer.stop();
removeHome(home);

await it('serves two principals over TLS, each alone', async () => {
  const place = makeHome();
  const made = spawnSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
    '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost', '-keyout', `${place}/key.pem`, '-out',
    `${place}/cert.pem`], { encoding: 'utf8' });
  assert.equal(made.status, 0, made.stderr);
  const digest = (text) => createHash('sha256').update(text).digest('hex');
  fs.writeFileSync(`${place}/tokens`, `ann:${digest('token-of-ann')}\nben:${digest('token-of-ben')}\n`, { mode: 0o600 });
  const secured = await freePort();
  const tls = await serve(place, `return { http = { listen = "127.0.0.1:${secured}", token_file = "tokens",
    tls = { cert = "cert.pem", key = "key.pem" } } }`);
  const script = `
    import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
    const open = async (token) => {
      const client = new Client({ name: 'peer', version: '1' }, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
      await client.connect(new StreamableHTTPClientTransport(new URL('https://127.0.0.1:${secured}/mcp'), {
        requestInit: { headers: { Authorization: 'Bearer ' + token } } }), { timeout: 5000 });
      return client;
    };
    const clients = await Promise.all(['token-of-ann', 'token-of-ben'].map(open));
    const call = (client, name, args = {}) => client.callTool({ name, arguments: args });
    const ran = await call(clients[0], 'get_sandbox');
    const listed = await Promise.all(clients.map((client) => call(client, 'list_sandboxes')));
    console.log(JSON.stringify({ failed: ran.isError, lists: listed.map((one) => one.structuredContent.sandboxes.length) }));
    await Promise.all(clients.map((client) => client.close()));`;
  const ran = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    cwd: path.dirname(new URL(import.meta.url).pathname), encoding: 'utf8', timeout: 20_000,
    env: { ...process.env, NODE_EXTRA_CA_CERTS: `${place}/cert.pem` },
  });
  assert.equal(ran.status, 0, ran.stderr);
  assert.deepEqual(JSON.parse(ran.stdout), { failed: true, lists: [0, 0] });
  const plain = await fetch(`http://127.0.0.1:${secured}/health`).catch(() => null);
  assert.equal(plain, null);
  await tls.stop();
  removeHome(place);
});
finish();

// selftest.mjs - the clients against npm's own server: shows that a failure of the other files is not the clients'.
// By hand: DML_NODE spec/peers/support/selftest.mjs
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as TransportV1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import path from 'node:path';

import { assert, finish, it, sleep } from './cases.mjs';
import { RawClient } from './raw.mjs';
import { goneAfter, peers } from './server.mjs';

const everything = path.join(peers, 'node_modules/@modelcontextprotocol/server-everything/dist/index.js');
const server = { command: process.execPath, args: [everything, 'stdio'], env: { PATH: process.env.PATH }, stderr: 'ignore' };

async function exercise(client, transport, call) {
  await client.connect(transport);
  const { pid } = transport;
  assert.ok((await client.listTools()).tools.length > 5);
  await client.ping();
  assert.equal((await call({ name: 'echo', arguments: { message: 'hi' } })).content[0].text, 'Echo: hi');
  const seen = [];
  await call({ name: 'trigger-long-running-operation', arguments: { duration: 1, steps: 4 } }, { onprogress: (now) => seen.push(now) });
  assert.ok(seen.length >= 3, `${seen.length} notifications`);
  const controller = new AbortController();
  const long = call({ name: 'trigger-long-running-operation', arguments: { duration: 9, steps: 4 } }, { signal: controller.signal });
  await sleep(100);
  controller.abort();
  await assert.rejects(long);
  await client.close();
  assert.notEqual(await goneAfter(pid, 3000), null);
}

await it('sdk 1.x', async () => {
  const client = new ClientV1({ name: 'selftest', version: '1' });
  await exercise(client, new TransportV1(server), (params, options) => client.callTool(params, undefined, options));
});
for (const mode of ['legacy', 'auto']) {
  await it(`client 2.x ${mode}`, async () => {
    const client = new Client({ name: 'selftest', version: '1' }, { versionNegotiation: { mode } });
    await exercise(client, new StdioClientTransport(server), (params, options) => client.callTool(params, options));
  });
}
await it('client 2.x pinned fails loudly', async () => {
  const client = new Client({ name: 'selftest', version: '1' }, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
  await assert.rejects(client.connect(new StdioClientTransport(server), { timeout: 4000 }));
});
await it('raw', async () => {
  const client = new RawClient(server, '2025-11-25');
  assert.equal((await client.open()).result.protocolVersion, '2025-11-25');
  assert.equal((await client.call('echo', { message: 'hi' })).result.content[0].text, 'Echo: hi');
  await client.end();
  assert.ok(client.received.length >= 2);
});
finish();

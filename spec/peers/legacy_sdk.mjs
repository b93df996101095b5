// timeout: 120
// legacy_sdk.mjs - npm's @modelcontextprotocol/sdk (1.x), which speaks the revisions up to 2025-11-25.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

import { assert, finish, it } from './support/cases.mjs';
import { runContract } from './support/contract.mjs';
import { makeHome, parameters } from './support/server.mjs';

const home = makeHome();
const transport = new StdioClientTransport(parameters(home));
const client = new Client({ name: 'demilune-peer', version: '1' });

const isConnected = await it('sdk 1.x: connects', async () => {
  await client.connect(transport, { timeout: 5000 });
  assert.equal(client.getServerVersion().name, 'demilune');
  assert.ok(client.getServerCapabilities().tools);
  assert.ok(client.getInstructions().length > 0 && client.getInstructions().length <= 2048);
});

if (isConnected) {
  await runContract({
    name: 'sdk 1.x',
    isModern: false,
    pid: () => transport.pid,
    list: async () => (await client.listTools()).tools,
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    ping: () => client.ping(),
    close: () => client.close(),
  }, home);
}
finish();

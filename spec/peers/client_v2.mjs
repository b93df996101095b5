// timeout: 240
// client_v2.mjs - npm's @modelcontextprotocol/client (2.x) in its three modes: the handshake, probing first, and
// 2026-07-28 alone.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { assert, finish, it } from './support/cases.mjs';
import { runContract } from './support/contract.mjs';
import { makeHome, parameters } from './support/server.mjs';

const MODES = [
  { name: 'legacy', mode: 'legacy', revision: '2025-11-25' },
  { name: 'auto', mode: 'auto', revision: '2026-07-28' },
  { name: 'pinned', mode: { pin: '2026-07-28' }, revision: '2026-07-28' },
];

for (const { name, mode, revision } of MODES) {
  const home = makeHome();
  const transport = new StdioClientTransport(parameters(home));
  const client = new Client({ name: 'demilune-peer', version: '1' }, { versionNegotiation: { mode } });
  const isConnected = await it(`client 2.x ${name}: connects`, async () => {
    await client.connect(transport, { timeout: 5000 });
    assert.equal(client.getNegotiatedProtocolVersion(), revision);
    assert.equal(client.getServerVersion().name, 'demilune');
    assert.ok(client.getInstructions().length > 0);
  });
  if (isConnected) {
    await runContract({
      name: `client 2.x ${name}`,
      isModern: revision >= '2026',
      pid: () => transport.pid,
      list: async () => (await client.listTools()).tools,
      call: (tool, args, options) => client.callTool({ name: tool, arguments: args }, options),
      ping: () => client.ping({ timeout: 2000 }),
      close: () => client.close(),
    }, home);
  }
}
finish();

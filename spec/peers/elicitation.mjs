// timeout: 240
// elicitation.mjs - a policy that asks, and clients of others that show its question to a person: npm's
// @modelcontextprotocol/sdk (1.x) and client (2.x) in both eras.
import fs from 'node:fs';
import path from 'node:path';

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as LegacyTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

import { assert, finish, it } from './support/cases.mjs';
import { failed, worked } from './support/contract.mjs';
import { makeHome, parameters, removeHome } from './support/server.mjs';

const POLICY = `return { version = "v1", default = "allow", rules = {
  { name = "careful", match = "run_command", ask = "Run this here?" },
} }`;

/** How a client starts a server with that policy. */
function start(home) {
  fs.writeFileSync(path.join(home, 'policy.lua'), POLICY);
  fs.writeFileSync(path.join(home, 'demilune.lua'), 'return { policy = "policy.lua" }');
  return parameters(home, ['serve', '--config', path.join(home, 'demilune.lua')]);
}

const FORMS = { capabilities: { elicitation: { form: {} } } };
const INFO = { name: 'demilune-peer', version: '1' };

/** A client that answers as `person.answer` says and keeps what it was shown. */
const CLIENTS = [
  {
    name: 'sdk 1.x',
    async connect(home, person, options) {
      const client = new LegacyClient(INFO, options);
      if (person) client.setRequestHandler(ElicitRequestSchema, (request) => person.see(request.params));
      await client.connect(new LegacyTransport(start(home)), { timeout: 5000 });
      return { call: (command) => client.callTool({ name: 'run_command', arguments: { command } }), close: () => client.close() };
    },
  },
  ...['legacy', { pin: '2026-07-28' }].map((mode) => ({
    name: `client 2.x ${mode.pin ?? mode}`,
    async connect(home, person, options) {
      const client = new Client(INFO, { ...options, versionNegotiation: { mode } });
      if (person) client.setRequestHandler('elicitation/create', (request) => person.see(request.params));
      await client.connect(new StdioClientTransport(start(home)), { timeout: 5000 });
      return { call: (command) => client.callTool({ name: 'run_command', arguments: { command } }), close: () => client.close() };
    },
  })),
];

class Person {
  shown = [];

  see(params) {
    this.shown.push(params);
    return this.answer;
  }
}

for (const { name, connect } of CLIENTS) {
  const home = makeHome();
  await it(`${name}: a person's answer decides`, async () => {
    const person = new Person();
    const client = await connect(home, person, FORMS);
    try {
      person.answer = { action: 'accept', content: { approve: true } };
      assert.equal(worked(await client.call('echo yes')).stdout, 'yes\n');
      assert.match(person.shown[0].message, /^Run this here\?\n\ntool: run_command\n/);
      assert.match(person.shown[0].message, /echo yes/);
      assert.deepEqual(person.shown[0].requestedSchema.required, ['approve']);
      person.answer = { action: 'accept', content: { approve: false } };
      assert.equal(failed(await client.call('echo no'), 'approval_refused').rule, 'careful');
      person.answer = { action: 'decline' };
      failed(await client.call('echo no'), 'approval_refused');
      person.answer = { action: 'cancel' };
      const open = failed(await client.call('echo later'), 'approval_required');
      assert.match(open.approval_id, /^ap_[a-z2-7]{16}$/);
      assert.equal(person.shown.length, 4);
    } finally {
      await client.close();
    }
  });
  await it(`${name}: without forms there is an id for the operator`, async () => {
    const client = await connect(home, null, {});
    try {
      assert.match(failed(await client.call('echo hi'), 'approval_required').approval_id, /^ap_/);
    } finally {
      await client.close();
    }
  });
  removeHome(home);
}
finish();

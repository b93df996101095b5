// timeout: 120
// inspector.mjs - npm's MCP inspector as a command: one server process for each call.
import { spawn } from 'node:child_process';
import path from 'node:path';

import { assert, finish, it } from './support/cases.mjs';
import { TOOLS } from './support/contract.mjs';
import { leftOf, makeHome, parameters, peers, removeHome } from './support/server.mjs';

const launcher = path.join(peers, 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js');
const home = makeHome();
const { command, args, env } = parameters(home);

/** Runs the inspector; resolves with { code, stdout, stderr }. */
function inspect(...words) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [launcher, '--cli', command, ...args, ...words], { env, cwd: home, stdio: ['ignore', 'pipe', 'pipe'] });
    const out = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr']) child[name].setEncoding('utf8').on('data', (text) => { out[name] += text; });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, ...out }));
  });
}

function parsed(answer) {
  const value = JSON.parse(answer.stdout);
  return value.result ?? value;
}

for (const era of ['legacy', 'modern']) {
  await it(`inspector ${era}: lists the tools`, async () => {
    const answer = await inspect('--method', 'tools/list', '--format', 'json', '-q', '--protocol-era', era);
    assert.equal(answer.code, 0, answer.stderr);
    assert.deepEqual(parsed(answer).tools.map((tool) => tool.name).sort(), TOOLS);
  });
  await it(`inspector ${era}: calls a tool`, async () => {
    const answer = await inspect('--method', 'tools/call', '--tool-name', 'run_command', '--tool-arg', 'command=echo hi',
      '--format', 'json', '-q', '--protocol-era', era);
    assert.equal(answer.code, 0, answer.stdout + answer.stderr);
    assert.equal(parsed(answer).structuredContent.stdout, 'hi\n');
  });
}
await it('inspector: finds the schemas portable', async () => {
  const answer = await inspect('--method', 'tools/list', '--strict');
  assert.equal(answer.code, 0, answer.stderr);
});
await it('inspector: leaves nothing once the engine is stopped', async () => {
  assert.equal(removeHome(home), 0);
  assert.deepEqual(await leftOf(home), []);
});
finish();

// judge.mjs - the official MCP client against the stand-in, before our client is: node judge.mjs PORT KEY. Silent and 0 when
// the stand-in is what a client of the protocol expects, in each of its manners.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../peers/package.json', import.meta.url));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

const [port, key] = process.argv.slice(2);
const base = `http://127.0.0.1:${port}`;
setTimeout(() => { process.stderr.write('the judge took too long\n'); process.exit(1); }, 20000).unref();

const control = (body) => fetch(`${base}/control`, { method: 'POST', body: JSON.stringify(body) }).then((res) => res.json());

async function connect(where = '/mcp') {
  const transport = new StreamableHTTPClientTransport(new URL(base + where), {
    requestInit: { headers: { Authorization: `Bearer ${key}` } },
  });
  const client = new Client({ name: 'judge', version: '1' });
  await client.connect(transport);
  return { client, transport };
}

for (const sse of [false, true]) {
  for (const session of [false, true]) {
    await control({ reset: true, sse, session });
    const { client, transport } = await connect(sse ? '/projects/shop/mcp' : '/mcp');
    assert.equal(transport.sessionId !== undefined, session);
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name), ['veryfront__create_sandbox', 'veryfront__update_sandbox_lifetime']);
    // The client checks structured content against the output schema that was listed.
    const made = await client.callTool({ name: 'veryfront__create_sandbox', arguments: { access_scope: 'project' } });
    assert.equal(made.structuredContent.access_scope, 'project');
    const id = made.structuredContent.id;
    const changed = await client.callTool({
      name: 'veryfront__update_sandbox_lifetime', arguments: { sandbox_id: id, ttl_mode: 'duration', ttl_hours: 3 },
    });
    assert.equal(changed.structuredContent.ttl_hours, 3);
    assert.equal(changed.structuredContent.id, id);
    await control({ answer: 'failed' });
    const failed = await client.callTool({ name: 'veryfront__create_sandbox', arguments: { access_scope: 'project' } });
    assert.equal(failed.isError, true);
    await control({ answer: 'rpc' });
    await assert.rejects(client.callTool({ name: 'veryfront__create_sandbox', arguments: { access_scope: 'project' } }));
    await client.close();
  }
}

await control({ reset: true, generation: 'old', page: 3 });
const { client } = await connect();
let cursor;
const names = [];
do {
  const page = await client.listTools(cursor && { cursor });
  names.push(...page.tools.map((tool) => tool.name));
  cursor = page.nextCursor;
} while (cursor);
assert.ok(names.includes('update_sandbox_session_lifetime') && !names.includes('veryfront__create_sandbox'));
await client.close();
process.exit(0);

// timeout: 150
// canary.mjs - secrets are planted in keys from three sources, access tokens, a provider's words and URLs. Then everything
// that a server can do is done, and every byte that came out, every file, the environment and arguments of every process
// and every request are searched for them in all the forms that a leak takes.
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';

import { assert, finish, it, skip, sleep } from '../peers/support/cases.mjs';
import { descendants, processesOf } from '../peers/support/server.mjs';
import { Home } from './support/driver.mjs';
import { forms, Search } from './support/search.mjs';
import { start } from './support/server.mjs';

const fresh = (name) => `${name}/${randomBytes(16).toString('hex')}+x`;
const planted = {
  'key of a variable': fresh('kv'),
  'key of a file': fresh('kf'),
  'key of a command': fresh('kc'),
  "the provider's words": fresh('pw'),
  'a URL': `u${randomBytes(16).toString('hex')}`,
};
const KEYS = ['key of a variable', 'key of a file', 'key of a command'];
const PROVIDERS = ['cloud', 'byfile', 'bycmd'];
const TOOLS = (sandbox_id) =>
  [
    ['get_sandbox', {}],
    ['list_sandboxes', {}],
    ['set_sandbox_timeout', { timeout: 290 }],
    ['run_command', { command: 'env; cat /proc/self/environ | tr "\\0" "\\n"' }],
    ['write_file', { path: 'a', content: 'b' }],
    ['read_file', { path: 'a' }],
    ['list_files', { path: '/' }],
    ['download_file', { path: 'a' }],
    ['upload_file', { path: 'u', content_base64: 'YQ==' }],
    ['run_code', { code: 'import os; print(dict(os.environ))' }],
    ['start_background_task', { command: 'env; sleep 30' }],
    ['get_background_task', {}],
  ].map(([tool, args]) => [
    tool,
    { ...args, ...(sandbox_id && tool !== 'list_sandboxes' && tool !== 'get_background_task' && { sandbox_id }) },
  ]);
const FAULTY = ['create', 'list', 'get', 'set_timeout', 'Start', 'write', 'read', 'ListDir', 'execute', 'kill'];

await it('the search finds each form, wherever it stands', async () => {
  const secret = planted[KEYS[0]];
  const search = new Search({ secret });
  const writers = [
    (s) => s,
    (s) => Buffer.from(s).toString('hex'),
    (s) => encodeURIComponent(s),
    (s) => Buffer.from(s).toString('base64'),
    (s) => Buffer.from(s).toString('base64url'),
    (s) => JSON.stringify(s).replaceAll('/', '\\/'),
  ];
  for (const write of writers)
    for (let before = 0; before < 4; before += 1) assert.ok(search.in(write(`${'q'.repeat(before)}${secret}tail`)).length > 0);
  assert.deepEqual(search.in(secret.replace('+x', '+y')), []);
  assert.equal(Object.keys(forms(secret)).length, 12);
  assert.throws(() => search.below('/no/such/folder'));
});

// ---- the world ----

const server = await start({ keys: KEYS.map((name) => planted[name]), prefix: `/${planted['a URL']}` });
const home = new Home(server, { key: planted['key of a variable'] });
const keyFile = path.join(home.path, 'planted.key');
const helper = path.join(home.path, 'helper');
const helperSaw = path.join(home.path, 'helper.saw');
const secretOfHelper = path.join(home.path, 'planted.secret');
fs.writeFileSync(keyFile, `${planted['key of a file']}\n`, { mode: 0o600 });
fs.writeFileSync(secretOfHelper, `${planted['key of a command']}\n`, { mode: 0o600 });
fs.writeFileSync(helper, `#!/bin/sh\ncat /proc/$$/environ /proc/$$/cmdline >> ${helperSaw}\ncat ${secretOfHelper}\n`, {
  mode: 0o700,
});
const entry = (id, credential) =>
  `{ id = "${id}", type = "e2b", api_url = "${server.url}", sandbox_url = "${server.url}", credential = "${credential}", lifetime = 300, templates = { "base", "code-interpreter-v1" } }`;
fs.writeFileSync(
  home.file,
  `return {
  default_provider = "cloud",
  providers = { ${entry('cloud', 'a')}, ${entry('byfile', 'b')}, ${entry('bycmd', 'c')} },
  credentials = { a = { source = "env:SPEC_CLOUD_KEY" }, b = { source = "file:planted.key" }, c = { source = "cmd:${helper} word" } },
  log = { level = "debug", file = "server.log" },
}\n`,
);
// What commands start by name tells what it was given too; a glance into /proc may come too late.
const bin = path.join(home.path, 'bin');
fs.mkdirSync(bin);
for (const name of ['dpkg-query', 'bwrap']) {
  const text = `#!/bin/sh\ncat /proc/$$/environ /proc/$$/cmdline >> ${helperSaw}.${name}\nexec /usr/bin/${name} "$@"\n`;
  fs.writeFileSync(path.join(bin, name), text, { mode: 0o755 });
}
home.env.PATH = `${bin}:/usr/local/bin:/usr/bin:/bin`;
const except = [keyFile, secretOfHelper, home.file];

const seen = { out: [], processes: new Set() };
const tokens = {};
const search = () => new Search({ ...planted, ...tokens });

function learnTokens() {
  for (const sandbox of server.control.sandboxes.values()) tokens[`token of ${sandbox.sandboxID}`] = sandbox.token;
}

/** A secret in all the ways that a program would write it, alone and among other bytes. */
function written(secret) {
  const among = ['', 'q', 'qq'].map((before) => Buffer.from(`${before}${secret}tail`));
  return [
    secret,
    Buffer.from(secret).toString('hex'),
    Buffer.from(secret).toString('hex').toUpperCase(),
    encodeURIComponent(secret),
    ...[Buffer.from(secret), ...among].flatMap((bytes) => [bytes.toString('base64'), bytes.toString('base64url')]),
  ];
}

const canReadProcesses = process.getuid() === 0;
const leaks = [];

/** Looks at every process of the home and below the server, as long as `isOn()`. */
async function watchProcesses(client, isOn) {
  while (isOn()) {
    learnTokens();
    const looking = search();
    for (const pid of new Set([client.pid, ...descendants(client.pid), ...processesOf(home.path)])) {
      // A command of ours has its key in its environment until it has read it; what it starts never does.
      if (pid === process.pid || home.started.has(pid)) continue;
      leaks.push(...looking.ofProcess(pid));
      seen.processes.add(pid);
    }
    await sleep(20);
  }
}

const client = await home.serve();
let isOn = canReadProcesses;
const watching = watchProcesses(client, () => isOn);
if (!canReadProcesses) skip('environments of processes', 'only root can read those of a program that is not dumpable');

await it('everything is done that can be', async () => {
  for (const provider of PROVIDERS) {
    const { sandbox_id } = await client.must('create_sandbox', {
      provider,
      template: 'code-interpreter-v1',
      envs: { MINE: 'yes' },
    });
    learnTokens();
    for (const [tool, args] of TOOLS(sandbox_id)) {
      const { error } = await client.try(tool, args);
      assert.equal(error, undefined, `${provider} ${tool}: ${JSON.stringify(error)}`);
    }
  }
});

await it('and everything fails that can, in words with all secrets in them', async () => {
  learnTokens();
  const words = [...Object.values(planted), ...Object.values(tokens)].join(' ');
  const encoded = Object.values({ ...planted, ...tokens })
    .flatMap((secret) => Object.values(forms(secret)))
    .join(' ');
  const body = { code: 400, message: `${words} ${encoded}`, error_code: words, sandboxId: words };
  const headers = {
    'x-words': planted["the provider's words"],
    location: `https://${planted['a URL']}.example/${planted["the provider's words"]}`,
  };
  for (const status of [400, 401, 403, 404, 409, 429, 500, 502, 307]) {
    server.faults.clear();
    for (const op of FAULTY) server.faults.add({ op, status, headers, body });
    await Promise.all([...TOOLS(), ['create_sandbox', {}], ['kill_sandbox', {}]].map((call) => client.try(...call)));
  }
  for (const answer of [words, JSON.stringify([words]), JSON.stringify({ sandboxID: words, envdAccessToken: words })]) {
    server.faults.clear();
    for (const op of FAULTY)
      server.faults.add({
        op,
        status: op === 'create' ? 201 : 200,
        headers: { ...headers, 'content-type': 'application/json' },
        body: answer,
      });
    await Promise.all([...TOOLS(), ['create_sandbox', {}]].map((call) => client.try(...call)));
  }
  server.faults.clear();
  server.faults.add({ op: 'Start', frames: [[2, { error: { code: 'internal', message: words } }]] });
  await client.try('run_command', { command: 'true' });
  server.faults.clear();
  // What was said to be gone is not killed by anybody.
  await Promise.all([...server.control.sandboxes.values()].map((one) => server.control.remove(one)));
});

await it('a sandbox that prints its token or a key shows neither', async () => {
  const { sandbox_id } = await client.must('create_sandbox', {});
  learnTokens();
  for (const secret of [...Object.values(planted).slice(0, KEYS.length), server.control.find(sandbox_id).token]) {
    const texts = written(secret);
    const { content } = await client.try('run_command', {
      sandbox_id,
      command: `printf '%s\\n' ${texts.map((text) => `'${text}'`).join(' ')}; echo seen >&2`,
    });
    assert.match(content.stdout, /\[redacted\]/);
    assert.equal(content.stderr, 'seen\n');
    await client.try('write_file', { sandbox_id, path: 'leak', content: secret });
    await client.try('read_file', { sandbox_id, path: 'leak' });
    // In pieces: redaction must not depend on where chunks begin.
    const halves = `printf '${secret.slice(0, 9)}'; sleep 0.2; printf '${secret.slice(9)}\\n'`;
    await client.try('run_command', { sandbox_id, command: halves });
  }
});

await it('a kill that is not answered is finished by a process of its own', async () => {
  server.faults.add({ op: 'kill', hang: true, times: 1 });
  const { code } = await client.stop(15_000);
  assert.equal(code, 0);
  for (let i = 0; i < 300 && server.ids.length > 0; i += 1) await sleep(100);
  assert.deepEqual(server.ids, []);
  server.faults.clear();
});

await it('commands say nothing either', async () => {
  for (const args of [
    ['doctor'],
    ['ls'],
    ['ls', '--json'],
    ['tools'],
    ['check'],
    ['call', 'list_sandboxes', '{}'],
    ['call', 'get_sandbox', '{"sandbox_id":"inone"}', '--json'],
    ['exec', 'inone', '--', 'true'],
    ['kill', 'inone'],
    ['call', 'list_sandboxes', '{}', '--show-provider-text'],
  ]) {
    const { stdout, stderr } = await home.run(args);
    seen.out.push([args.join(' '), stdout + stderr]);
  }
  server.faults.add({ op: '*', status: 500, body: { message: Object.values(planted).join(' ') } });
  for (const args of [
    ['ls'],
    ['doctor'],
    ['call', 'list_sandboxes', '{}', '--json'],
    ['call', 'run_command', '{"command":"true"}', '--json', '--show-provider-text'],
  ]) {
    const { stdout, stderr } = await home.run(args);
    seen.out.push([`${args.join(' ')} (failing)`, stdout + stderr]);
  }
  server.faults.clear();
});

await it('a command has wiped its key once it is at work', async () => {
  const running = home.call('run_command', { command: 'sleep 3' });
  for (let i = 0; i < 250 && !server.recorder.requests.some((one) => one.op === 'Start' && !one.status); i += 1)
    await sleep(20);
  const { pid } = home;
  if (canReadProcesses) assert.deepEqual(search().ofProcess(pid), []);
  assert.equal((await running).code, 0);
});

// ---- the search ----

const { 'a URL': url, ...secrets } = planted;
await it('no byte that came out has a secret', async () => {
  const looking = search();
  const found = [];
  for (const { line, tool } of client.received)
    found.push(...looking.in(line).map((what) => `answer to ${tool}: ${what}: ${line.slice(0, 300)}`));
  found.push(...looking.in(client.stderr).map((what) => `stderr of serve: ${what}`));
  // What a person at the machine runs may name the configured URL.
  const forPeople = new Search({ ...secrets, ...tokens });
  for (const [command, text] of seen.out)
    found.push(...forPeople.in(text).map((what) => `demilune ${command}: ${what}: ${text.slice(0, 300)}`));
  assert.deepEqual(found, []);
  assert.ok(looking.searched.bytes > 50_000, `${looking.searched.bytes} bytes`);
  assert.ok(Object.keys(tokens).length >= 4, Object.keys(tokens).join());
});

await it('no file has one', async () => {
  const looking = search();
  assert.deepEqual(looking.below(home.path, except), []);
  assert.ok(looking.searched.files >= 2, `${looking.searched.files} files`);
  assert.ok(fs.existsSync(path.join(home.path, 'server.log')), 'there is no log');
});

await it('no process had one in its environment or arguments', async () => {
  assert.ok(fs.statSync(helperSaw).size > 0, 'the helper program was not run');
  if (!canReadProcesses) return;
  isOn = false;
  await watching;
  assert.deepEqual([...new Set(leaks)], []);
  assert.ok(seen.processes.size >= 1, `${seen.processes.size} processes`);
});

await it('no request has one but where it belongs', async () => {
  const looking = search();
  const found = [];
  for (const {
    headers: { 'x-api-key': _key, 'x-access-token': _token, ...headers },
    ...one
  } of server.recorder.requests) {
    const said = Buffer.concat([Buffer.from(JSON.stringify(headers) + one.path + one.query), ...one.chunks]);
    const isPlanted = one.op === 'Start' || one.op === 'write';
    found.push(
      ...looking
        .in(said)
        .filter(() => !isPlanted)
        .map((what) => `${one.op}: ${what}`),
    );
  }
  assert.deepEqual(found, []);
});

await it('nothing is left', async () => {
  assert.deepEqual(server.ids, []);
  assert.deepEqual(await home.remove(), []);
});
await server.close();
finish();

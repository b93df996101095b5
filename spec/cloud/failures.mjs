// timeout: 240
// failures.mjs - every failure that a provider can produce, from a table, for every operation: the right category, within
// the deadline, nothing of the provider's words, and no sandbox left behind that we made. Each operation has a stand-in and
// a server of its own, so that all go on at once.
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';

import { assert, finish, it, skip, sleep } from '../peers/support/cases.mjs';
import { Home } from './support/driver.mjs';
import { start } from './support/server.mjs';

const CANARY = `cn${randomBytes(12).toString('hex')}`;
// Beyond what the deadline itself allows: the machine is shared.
const SLACK_MS = 4000;
const CONTROL_MS = 30_000;
const CREATE_MS = 50_000;
const CASE_MS = 75_000;
const COMMAND_S = 2;
const COMMAND_MARGIN_MS = 10_000;

const words = { 'x-words': CANARY };
const html = `<html>${CANARY}</html>`;
const told = (code) => ({ code, message: `${CANARY} https://host.example/${CANARY}` });

// ---- what means what ----

/** Category of a status: for a creation, a sandbox of ours on the control plane, its data plane, the list. */
const STATUSES = {
  300: 'provider_rejected',
  301: 'provider_rejected',
  302: 'provider_rejected',
  303: 'provider_rejected',
  304: 'provider_rejected',
  307: 'provider_rejected',
  308: 'provider_rejected',
  400: 'provider_rejected',
  401: 'authentication_failed',
  402: 'quota_exceeded',
  403: 'provider_forbidden',
  404: {
    create: 'not_found',
    list: 'not_found|provider_rejected',
    control: 'sandbox_gone',
    data: 'file_not_found|unsupported|provider_rejected|sandbox_gone',
  },
  405: 'provider_rejected',
  406: 'provider_rejected',
  408: 'provider_timeout|provider_rejected',
  409: { create: 'provider_rejected', list: 'conflict', control: 'conflict', data: 'conflict' },
  410: {
    create: 'sandbox_gone|provider_rejected|not_found',
    list: 'sandbox_gone|provider_rejected|not_found',
    control: 'sandbox_gone',
    data: 'sandbox_gone',
  },
  411: 'provider_rejected',
  412: 'provider_rejected',
  413: 'provider_rejected',
  415: 'provider_rejected',
  418: 'provider_rejected',
  422: 'provider_rejected',
  429: 'quota_exceeded',
  451: 'provider_rejected',
  500: 'unavailable',
  501: 'unavailable|unsupported',
  502: { create: 'unavailable', list: 'unavailable', control: 'unavailable', data: 'sandbox_gone|unavailable' },
  503: { create: 'no_capacity', list: 'unavailable', control: 'unavailable', data: 'unavailable' },
  504: { create: 'no_capacity', list: 'unavailable', control: 'unavailable', data: 'unavailable' },
  507: {
    create: 'unavailable|disk_full',
    list: 'unavailable|disk_full',
    control: 'unavailable|disk_full',
    data: 'disk_full|unavailable',
  },
  599: 'unavailable',
};

function statusFaults(kind) {
  return Object.entries(STATUSES).flatMap(([status, meaning]) => {
    const number = Number(status);
    const wanted = typeof meaning === 'string' ? meaning : meaning[kind];
    const headers = { ...words, ...(number >= 300 && number < 400 && { location: `http://127.0.0.1:9/${CANARY}` }) };
    return [
      { name: `${status}`, fault: { status: number, headers, body: told(number) }, wanted },
      ...(number % 100 === 0
        ? [{ name: `${status} without JSON`, fault: { status: number, headers, body: html }, wanted }]
        : []),
    ];
  });
}

const RATE = [
  {
    name: '429 with Retry-After',
    fault: { status: 429, headers: { 'retry-after': '3600' }, body: told(429) },
    wanted: 'rate_limited',
    check: (error) => assert.equal(error.retry_after, 3600),
  },
];

const RESETS = [
  { name: 'reset before any answer', fault: { reset: 'start' }, wanted: 'connection_failed' },
  { name: 'reset within the head', fault: { reset: 'head' }, wanted: 'connection_failed|invalid_response' },
  { name: 'reset within the body', fault: { reset: 'body' }, wanted: 'connection_failed|invalid_response' },
  {
    name: 'an answer that is not HTTP',
    fault: { raw: '\x00\x01 not HTTP at all\r\n\r\n' },
    wanted: 'connection_failed|invalid_response',
  },
  {
    name: 'a header line without end',
    fault: { raw: `HTTP/1.1 200 OK\r\nX-Words: ${CANARY.repeat(20_000)}` },
    wanted: 'invalid_response',
  },
  { name: 'closed within the body', fault: { reset: 'close' }, wanted: 'connection_failed|invalid_response' },
];

const json = (status, body) => ({ status, headers: { 'content-type': 'application/json', ...words }, body });
const notJson = (status) =>
  [html, '', '{', '{"a":1}{"b":2}', '\0\0', `{"sandboxID":"${CANARY}`, '['.repeat(3000), '"\\ud800"'].map((body, i) => ({
    name: `no JSON, form ${i + 1}`,
    fault: json(status, body),
    wanted: 'invalid_response',
  }));

const badIds = [null, 7, true, '', '../../x', 'a/b', `i${'a'.repeat(300)}`, 'i\n', {}, [], `${CANARY}?x=`];
const wrongCreations = [
  [],
  null,
  5,
  'text',
  {},
  ...badIds.map((sandboxID) => ({ sandboxID, templateID: 't', envdVersion: '0.6.5', envdAccessToken: 'x'.repeat(40) })),
  { sandboxID: 'iabc', envdVersion: '0.6.5', envdAccessToken: 5 },
  { sandboxID: 'iabc', envdVersion: '0.6.5', envdAccessToken: 'short' },
];
const wrong = (status, list) =>
  list.map((body, i) => ({
    name: `wrong JSON, form ${i + 1}`,
    fault: json(status, JSON.stringify(body)),
    wanted: 'invalid_response',
  }));

const HUGE = { name: '1 GB of body', fault: { huge: 2 ** 30 }, wanted: 'invalid_response|too_large', isHeavy: true };
const HANG = { name: 'no answer', fault: { hang: true }, wanted: 'provider_timeout', isSlow: true };
const DRIP = { name: 'an answer that drips', fault: { drip: 200 }, wanted: 'provider_timeout', isSlow: true };

// ---- streams ----

const frame = (value) => [0, value];
const began = frame({ event: { start: { pid: 77 } } });
const out = frame({ event: { data: { stdout: Buffer.from('hi\n').toString('base64') } } });
const ended = frame({ event: { end: { exited: true, status: 'exit status 0' } } });
const stream = (...frames) => ({ frames });
const broken = (name, fault, wanted = 'invalid_response') => ({ name, fault, wanted });

const CODES = {
  canceled: 'unavailable',
  unknown: 'unavailable',
  invalid_argument: 'provider_rejected',
  deadline_exceeded: 'provider_timeout|none',
  not_found: 'file_not_found|unsupported|sandbox_gone',
  already_exists: 'conflict',
  permission_denied: 'file_permission',
  resource_exhausted: 'quota_exceeded',
  failed_precondition: 'conflict',
  aborted: 'conflict',
  out_of_range: 'provider_rejected',
  unimplemented: 'unsupported',
  internal: 'unavailable',
  unavailable: 'unavailable',
  data_loss: 'unavailable',
  unauthenticated: 'authentication_failed',
  [CANARY]: 'provider_rejected|invalid_response|unavailable',
};

const STREAMS = [
  broken('a stream of nothing', stream()),
  broken('a stream without its end frame', stream(began, out, ended), 'invalid_response'),
  broken('an end before the process ended', stream(began, out, [2, {}])),
  broken('a frame that is no JSON', stream(began, [0, `{${CANARY}`], [2, {}])),
  broken('a frame that is compressed', stream(began, [1, 'xx'], [2, {}])),
  broken('output that is no base64', stream(began, frame({ event: { data: { stdout: '!!!' } } }), ended, [2, {}])),
  broken('an exit code that is no number', stream(began, frame({ event: { end: { exitCode: CANARY } } }), [2, {}])),
  broken('an end frame that is no object', stream(began, out, ended, [2, '[]'])),
  broken('an error that is no object', stream(began, out, ended, [2, { error: CANARY }])),
  broken('a stream cut off within a frame', { truncate: 40 }, 'invalid_response|connection_failed'),
  broken('the right stream without its end frame', { no_end: true }, 'invalid_response'),
  broken('plain JSON in place of a stream', json(200, '{"event":{}}')),
  ...Object.entries(CODES).map(([code, wanted]) =>
    broken(
      `the end frame's ${code === CANARY ? 'unknown code' : code}`,
      stream(began, [2, { error: { code, message: CANARY } }]),
      wanted,
    ),
  ),
];

// ---- the table ----

const control = (status, shapes) => [
  ...statusFaults('control'),
  ...RATE,
  ...RESETS,
  ...(status === 204 ? [] : [...notJson(status), ...wrong(status, shapes)]),
];

const OPERATIONS = {
  create: {
    op: 'create',
    isCreate: true,
    call: ['create_sandbox', {}],
    deadline: CREATE_MS,
    cases: [...statusFaults('create'), ...RATE, ...RESETS, ...notJson(201), ...wrong(201, wrongCreations), HUGE, HANG, DRIP],
  },
  list: {
    op: 'list',
    call: ['list_sandboxes', {}],
    deadline: CONTROL_MS,
    cases: [
      ...statusFaults('list'),
      ...RATE,
      ...RESETS,
      ...notJson(200),
      ...wrong(200, [null, 5, 'text', [5], [null], [{}], [[]], ...badIds.map((sandboxID) => [{ sandboxID }])]),
      HUGE,
      HANG,
      DRIP,
    ],
  },
  get: {
    op: 'get',
    call: ['get_sandbox', {}],
    deadline: CONTROL_MS,
    cases: [...control(200, [[], null, 5, {}, ...badIds.map((sandboxID) => ({ sandboxID }))]), HUGE, HANG, DRIP],
  },
  set_timeout: {
    op: 'set_timeout',
    call: ['set_sandbox_timeout', { timeout: 250 }],
    deadline: CONTROL_MS,
    cases: [...control(204), HUGE, HANG],
  },
  kill: {
    op: 'kill',
    call: ['kill_sandbox', {}],
    deadline: CONTROL_MS,
    // What is gone is killed.
    cases: [...control(204).map((one) => (/^(404|410)/.test(one.name) ? { ...one, wanted: 'none|sandbox_gone' } : one)), HANG],
  },
  run: {
    op: 'Start',
    isData: true,
    call: ['run_command', { command: 'echo hi', timeout: COMMAND_S }],
    deadline: COMMAND_S * 1000 + COMMAND_MARGIN_MS,
    cases: [
      ...statusFaults('data'),
      ...RATE,
      ...RESETS,
      ...STREAMS,
      { ...HUGE, fault: { huge: 2 ** 30, type: 'application/connect+json' } },
      {
        ...HUGE,
        name: 'a frame of 1 GB',
        fault: {
          huge: 2 ** 30,
          type: 'application/connect+json',
          chunk: Buffer.from([0, 0x40, 0, 0, 0, ...Buffer.alloc(65531)]),
        },
      },
      { ...HANG, wanted: 'provider_timeout' },
      { ...DRIP, fault: { drip: 100, type: 'application/connect+json', prefix: Buffer.from([0, 0, 1, 0, 0]) } },
    ],
  },
  read: {
    op: 'read',
    isData: true,
    call: ['download_file', { path: '/etc/passwd' }],
    deadline: 120_000,
    cases: [
      ...statusFaults('data'),
      ...RATE,
      ...RESETS,
      { ...HUGE, fault: { ...HUGE.fault, type: 'application/octet-stream' } },
      broken('half of the file', { truncate: 10 }, 'invalid_response|connection_failed'),
    ],
  },
  write: {
    op: 'write',
    isData: true,
    call: ['write_file', { path: '/tmp/w', content: 'x' }],
    deadline: 120_000,
    cases: [
      ...statusFaults('data').map((one) => (one.name.startsWith('404') ? { ...one, wanted: `${one.wanted}|not_found` } : one)),
      ...RATE,
      ...RESETS,
    ],
  },
  list_dir: {
    op: 'ListDir',
    isData: true,
    call: ['list_files', { path: '/tmp' }],
    deadline: CONTROL_MS,
    cases: [
      ...statusFaults('data'),
      ...RATE,
      ...RESETS,
      ...notJson(200),
      ...wrong(200, [[], null, 5, { entries: 5 }, { entries: [5] }, { entries: [{}] }]),
      HUGE,
      HANG,
      DRIP,
    ],
  },
};

// ---- running it ----

class Lane {
  constructor(name) {
    this.name = name;
    this.operation = OPERATIONS[name];
  }

  async open() {
    this.server = await start();
    this.home = new Home(this.server);
    this.client = await this.home.serve();
    this.client.answerTimeoutMs = CASE_MS;
  }

  /** A sandbox of ours that is there. */
  async ready() {
    this.server.faults.clear();
    const { content } = await this.client.try('get_sandbox');
    if (!content || !this.server.ids.includes(content.sandbox_id)) {
      // What the faults said was gone, the scope does not kill any more.
      await this.client.try('kill_sandbox', {});
      await Promise.all([...this.server.control.sandboxes.values()].map((one) => this.server.control.remove(one)));
      await this.client.must('create_sandbox');
    }
    this.server.recorder.clear();
  }

  peakMb() {
    return Number(/VmHWM:\s+(\d+)/.exec(fs.readFileSync(`/proc/${this.client.pid}/status`, 'utf8'))[1]) / 1024;
  }

  async one({ fault, wanted, check }, isReal) {
    const { call, op, isCreate, deadline } = this.operation;
    if (!isCreate) await this.ready();
    const before = this.server.ids;
    this.server.faults.add({ ...fault, op, ...(isReal && { real: true }) });
    const { content, error, text, took } = await this.client.try(...call);
    this.server.faults.clear();
    const category = error?.category ?? 'none';
    assert.ok(wanted.split('|').includes(category), `${category} in place of ${wanted}: ${JSON.stringify(error ?? content)}`);
    assert.ok(took < deadline + SLACK_MS, `${Math.round(took)} ms`);
    assert.ok(!(text ?? '').includes(CANARY), `the provider's words: ${text}`);
    if (error) check?.(error);
    if (isCreate) await this.#nothingLeft(before);
  }

  async #nothingLeft(before) {
    const fresh = () => this.server.ids.filter((id) => !before.includes(id));
    for (let i = 0; i < 250 && fresh().length > 0; i += 1) await sleep(20);
    assert.deepEqual(fresh(), [], 'a sandbox is left behind');
  }

  async close() {
    assert.ok(this.peakMb() < 150, `${this.peakMb()} MB at the peak`);
    assert.ok(!this.client.stderr.includes(CANARY), `the provider's words in the log: ${this.client.stderr}`);
    await this.ready();
    await this.client.stop();
    for (let i = 0; i < 250 && this.server.ids.length > 0; i += 1) await sleep(20);
    assert.deepEqual(this.server.ids, [], 'left behind at the end');
    await this.server.close();
    assert.deepEqual(await this.home.remove(), []);
  }
}

const only = process.argv[2];

/** The cases of an operation, each with the way it is tried: [text, case, isReal]. */
function casesOf(name) {
  const { cases, isCreate } = OPERATIONS[name];
  // What was made although the answer was lost.
  const isLost = (one) => one.isSlow || one.fault.reset || one.fault.status >= 500 || /^(no|wrong) JSON/.test(one.name);
  return cases
    .flatMap((one) => [
      [`${name}: ${one.name}`, one, false],
      ...(isCreate && isLost(one) ? [[`${name}, made all the same: ${one.name}`, one, true]] : []),
    ])
    .filter(([text]) => !only || text.includes(only));
}

async function run(name, tried) {
  if (tried.length === 0) return;
  const lane = new Lane(name);
  if (!(await it(`${name}: a server starts`, () => lane.open()))) return;
  for (const [text, one, isReal] of tried) await it(text, () => lane.one(one, isReal), CASE_MS);
  await it(`${name}: nothing is left, and little was used`, () => lane.close());
}

const isLong = ([, one]) => one.isSlow || one.isHeavy;
const names = Object.keys(OPERATIONS);
await Promise.all(
  names.map((name) =>
    run(
      name,
      casesOf(name).filter((tried) => !isLong(tried)),
    ),
  ),
);
if (process.env.DML_SPEC_SLOW || only) {
  const long = names.flatMap((name) =>
    casesOf(name)
      .filter(isLong)
      .map((tried) => run(name, [tried])),
  );
  await Promise.all(long);
} else {
  skip('answers that never come, or never end', 'they take a minute; scripts/test --all has them');
}
finish();

// serve.mjs - the stand-in as a program, for tests that are not JavaScript. Prints { url, key } as one line, then answers
// commands, one line of JSON each: { faults: [...] } sets them, { get: "ids" | "requests" | "created" } asks, { clear: true }
// forgets requests, { record: false } keeps none. Ends with its stdin.
import { createInterface } from 'node:readline';

import { start } from './server.mjs';

const server = await start(JSON.parse(process.argv[2] ?? '{}'));
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

function brief({ op, method, path, status, version }) {
  return { op, method, path, status, version };
}

function obey(command) {
  if (command.faults) {
    server.faults.clear();
    Object.values(command.faults).forEach((fault) => server.faults.add(fault));
  }
  if (command.clear) server.recorder.clear();
  if (command.record !== undefined) server.recorder.isOn = command.record;
  if (command.get === 'ids') return server.ids;
  if (command.get === 'created') return server.control.everCreated;
  if (command.get === 'requests') return server.recorder.requests.map(brief);
  return { ok: true };
}

say({ url: server.url, key: server.key });
for await (const line of createInterface({ input: process.stdin })) say(obey(JSON.parse(line)));
await server.close();
process.exit(0);

// wire.mjs - E2B's services as the descriptors that the official SDK brings along say them, read out of the installed
// package at run time; nothing of it is copied here.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const peers = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../peers');

/** Loads what spec/peers has installed: nothing below spec/cloud would find it by its name. */
export const require = createRequire(path.join(peers, 'package.json'));

const { fileDesc, serviceDesc } = require('@bufbuild/protobuf/codegenv2');
const { file_google_protobuf_timestamp: timestamp } = require('@bufbuild/protobuf/wkt');

function files() {
  const source = fs.readFileSync(path.join(peers, 'node_modules/e2b/dist/index.mjs'), 'utf8');
  return [...source.matchAll(/fileDesc\("([^"]+)"(, \[)?/g)].map(([, bytes, needs]) =>
    fileDesc(bytes, needs ? [timestamp] : undefined),
  );
}

const services = files().flatMap((file) => file.services.map((_, i) => serviceDesc(file, i)));

/** `process.Process` or `filesystem.Filesystem`. */
export function service(name) {
  const found = services.find((one) => one.typeName === name);
  if (!found) throw new Error(`the SDK has no ${name}`);
  return found;
}

/** The message type of that name, in the file of a service. */
export function message(of, name) {
  return of.file.messages.find((one) => one.name === name);
}

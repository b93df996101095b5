// faults.mjs - wrong answers on demand, instead of or over the right ones.
//
// A fault is { op, times?, skip?, real?, delay?, … } and one of:
//   status, headers, body       that answer; an object as body becomes JSON
//   frames: [[flags, value]…]   that Connect stream, with its end as it stands
//   hang: true                  no answer
//   drip: ms, prefix?           an answer that begins and then gives one byte each so many ms
//   reset: "start" | "head" | "body" | "close"    the connection is reset at that stage, or closed within the body
//   raw: text                   those bytes in place of HTTP
//   huge: bytes, chunk?         an answer of so many bytes
//   truncate: bytes             the right answer, cut off after so many bytes of its body
//   no_end: true                the right stream without its end frame
// `op` is an operation's name or "*"; `real` does what was asked before answering wrongly.
import { setTimeout as sleep } from 'node:timers/promises';

import { writable } from './files.mjs';

export class Faults {
  list = [];

  add(fault) {
    this.list.push({ times: Infinity, skip: 0, ...fault });
  }

  clear() {
    this.list = [];
  }

  /** The fault for this request, if there is one; it is counted. */
  take(op) {
    for (const fault of this.list) {
      if ((fault.op !== op && fault.op !== '*') || fault.times <= 0) continue;
      if (fault.skip > 0) {
        fault.skip -= 1;
        continue;
      }
      fault.times -= 1;
      return fault;
    }
    return null;
  }
}

function frame([flags, value]) {
  const payload = Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
}

async function drain(req) {
  try {
    for await (const _ of req); // eslint-disable-line no-unused-vars
  } catch {
    // It went away.
  }
}

const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n';

async function reset(stage, req, res) {
  const { socket } = req;
  if (stage === 'head') socket.write(`${HEAD}Content-Le`);
  if (stage === 'body' || stage === 'close') socket.write(`${HEAD}Content-Length: 1000\r\n\r\n{"sandboxID":`);
  if (stage !== 'start') await sleep(30);
  if (stage === 'close') socket.destroy();
  else socket.resetAndDestroy();
  res.destroy();
}

async function drip(fault, res) {
  res.writeHead(200, { 'content-type': fault.type ?? 'application/json' });
  res.write(fault.prefix ?? '{');
  while (!res.destroyed && !res.closed) {
    await sleep(fault.drip);
    res.write(' ');
  }
}

async function huge(fault, res) {
  res.writeHead(200, { 'content-type': fault.type ?? 'application/json' });
  const chunk = fault.chunk ?? Buffer.alloc(65536, 0x20);
  for (let sent = 0; sent < fault.huge && !res.destroyed; sent += chunk.length) {
    if (!res.write(chunk)) await writable(res);
  }
  res.end();
}

/** Changes what the right answer writes. */
function rewrite(fault, res) {
  const write = res.write.bind(res);
  const end = res.end.bind(res);
  let left = fault.truncate ?? Infinity;
  const piece = (chunk) => {
    const bytes = Buffer.from(chunk);
    if (fault.no_end && (bytes[0] & 2) !== 0 && bytes.length >= 5) return Buffer.alloc(0);
    const kept = bytes.subarray(0, left);
    left -= kept.length;
    if (left <= 0) setImmediate(() => res.socket?.destroy());
    return kept;
  };
  const callback = (rest) => rest.find((one) => typeof one === 'function');
  res.write = (chunk, ...rest) => write(piece(chunk), callback(rest));
  res.end = (chunk, ...rest) => {
    if (chunk && typeof chunk !== 'function') write(piece(chunk));
    return left > 0 ? end(callback([chunk, ...rest])) : res;
  };
}

/** Answers wrongly; returns true when the right answer is still to be given. */
export async function apply(fault, req, res, doReal) {
  if (fault.delay) await sleep(fault.delay);
  if (fault.reset === 'start' && !fault.real) {
    req.socket.resetAndDestroy();
    return false;
  }
  if (fault.truncate !== undefined || fault.no_end) {
    rewrite(fault, res);
    return true;
  }
  if (fault.real) await doReal();
  else await drain(req);
  if (fault.reset) await reset(fault.reset, req, res);
  else if (fault.raw) req.socket.end(fault.raw, 'latin1');
  else if (fault.drip) await drip(fault, res);
  else if (fault.huge) await huge(fault, res);
  else if (fault.hang)
    await new Promise((resolve) => {
      res.once('close', resolve);
    });
  else if (fault.frames) {
    res.writeHead(200, { 'content-type': 'application/connect+json' });
    res.end(Buffer.concat(fault.frames.map(frame)));
  } else if (fault.status) {
    const isText = typeof fault.body === 'string' || fault.body === undefined;
    res.writeHead(fault.status, { 'content-type': isText ? 'text/html' : 'application/json', ...fault.headers });
    res.end(isText ? fault.body : JSON.stringify(fault.body));
  } else {
    return true;
  }
  return false;
}

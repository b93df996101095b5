// recorder.mjs - keeps what a client sent: method, path, query, headers, body, and when; what it got: the status.
import { createHash } from 'node:crypto';

const BODY_MAX_BYTES = 1 << 20;
const REQUESTS_MAX = 50_000;

/** Frames of a Connect stream: [flags, value] each. */
export function frames(bytes) {
  const found = [];
  for (let at = 0; at + 5 <= bytes.length;) {
    const length = bytes.readUInt32BE(at + 1);
    found.push([bytes[at], JSON.parse(bytes.subarray(at + 5, at + 5 + length).toString('utf8') || 'null')]);
    at += 5 + length;
  }
  return found;
}

export class Recorder {
  requests = [];
  isOn = true;

  /** Begins to record; call it before anything reads the request. */
  begin(req, url, op) {
    const record = {
      op,
      method: req.method,
      path: url.pathname,
      query: url.search.slice(1),
      headers: { ...req.headers },
      version: req.httpVersion,
      at: Date.now(),
      size: 0,
      chunks: [],
      status: null,
    };
    if (!this.isOn) return record;
    if (this.requests.length >= REQUESTS_MAX) this.requests.shift();
    this.requests.push(record);
    const hash = createHash('sha256');
    const push = req.push.bind(req);
    req.push = (chunk, ...rest) => {
      if (chunk) {
        if (record.size < BODY_MAX_BYTES) record.chunks.push(Buffer.from(chunk));
        record.size += chunk.length;
        hash.update(chunk);
      } else {
        record.sha256 ??= hash.digest('hex');
      }
      return push(chunk, ...rest);
    };
    return record;
  }

  /** Bytes of a body that was recorded (the first MiB). */
  static body(record) {
    return Buffer.concat(record.chunks);
  }

  clear() {
    this.requests = [];
  }

  /** How many requests of an operation came. */
  count(op) {
    return this.requests.filter((one) => one.op === op).length;
  }
}

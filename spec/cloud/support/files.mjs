// files.mjs - GET and POST /files of envd: raw and multipart uploads, ranges, signed URLs.
import { createHash } from 'node:crypto';

import { Refusal } from './control.mjs';
import { isOlder, userNamed } from './envd.mjs';

const PIECE_BYTES = 192 * 1024;

/** Whether the signature of a URL is right; E2B's formula. */
export function isSigned(sandbox, query, method) {
  const signature = query.get('signature');
  if (!signature) return false;
  const ends = query.get('signature_expiration');
  if (ends && Number(ends) < Date.now() / 1000) return false;
  const words = [query.get('path') ?? '', method === 'GET' ? 'read' : 'write', query.get('username') ?? '', sandbox.token];
  if (ends) words.push(ends);
  const digest = createHash('sha256').update(words.join(':')).digest('base64').replaceAll('=', '');
  return signature === `v1_${digest}`;
}

function userOf(sandbox, query) {
  const user = userNamed(sandbox, query.get('username') ?? undefined);
  if (!user) throw new Refusal(401, 'invalid username');
  return user;
}

async function ask(sandbox, op, fields) {
  try {
    return await sandbox.call(op, fields);
  } catch (error) {
    const status = { not_found: 404, is_directory: 400, permission_denied: 403, invalid_argument: 400, unavailable: 502 }[
      error.code
    ];
    throw new Refusal(status ?? 500, error.code === 'not_found' ? `path '${fields.path}' does not exist` : error.message);
  }
}

/** The first and last byte that a Range header asks for; null for none, undefined for one that cannot be had. */
function rangeOf(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return null;
  if (match[1] === '') return Number(match[2]) > 0 ? [Math.max(0, size - Number(match[2])), size - 1] : undefined;
  const first = Number(match[1]);
  const last = match[2] === '' ? size - 1 : Math.min(Number(match[2]), size - 1);
  return first < size && first <= last ? [first, last] : undefined;
}

function typeOf(path) {
  return (
    { txt: 'text/plain; charset=utf-8', json: 'application/json', html: 'text/html; charset=utf-8' }[path.split('.').at(-1)] ??
    'application/octet-stream'
  );
}

/** Until more can be written, or nobody reads it any more. */
export function writable(res) {
  if (res.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      res.off('drain', done);
      res.off('close', done);
      resolve();
    };
    res.on('drain', done);
    res.on('close', done);
  });
}

export async function read(sandbox, req, res, query) {
  const fields = { path: query.get('path') ?? '', user: userOf(sandbox, query) };
  const { size } = await ask(sandbox, 'read', { ...fields, offset: 0, length: 0 });
  const range = rangeOf(req.headers.range, size);
  if (range === undefined) {
    res.writeHead(416, { 'content-range': `bytes */${size}`, 'content-type': 'text/plain; charset=utf-8' });
    res.end('invalid range: failed to overlap\n');
    return;
  }
  const [first, last] = range ?? [0, size - 1];
  res.writeHead(range ? 206 : 200, {
    'content-type': typeOf(fields.path),
    'content-length': last - first + 1,
    'accept-ranges': 'bytes',
    ...(range && { 'content-range': `bytes ${first}-${last}/${size}` }),
  });
  for (let at = first; at <= last && !res.destroyed; at += PIECE_BYTES) {
    const { data } = await ask(sandbox, 'read', { ...fields, offset: at, length: Math.min(PIECE_BYTES, last - at + 1) });
    if (!res.write(Buffer.from(data, 'base64'))) await writable(res);
  }
  res.end();
}

async function store(sandbox, path, user, pieces) {
  const { upload, name, path: full } = await ask(sandbox, 'open_write', { path, user });
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; at += PIECE_BYTES) {
      await ask(sandbox, 'write', { upload, data: piece.subarray(at, at + PIECE_BYTES).toString('base64') });
    }
  }
  await ask(sandbox, 'close_write', { upload });
  return { name, type: 'file', path: full };
}

async function gather(req) {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function fromForm(sandbox, req, query, user) {
  let form;
  try {
    // Node's own parser of multipart bodies.
    form = await new Response(await gather(req), { headers: { 'content-type': req.headers['content-type'] } }).formData();
  } catch {
    throw new Refusal(400, 'error parsing multipart form');
  }
  const stored = [];
  for (const [name, part] of form) {
    if (name !== 'file' || typeof part === 'string') continue;
    const path = query.get('path') || part.name;
    stored.push(await store(sandbox, path, user, [Buffer.from(await part.arrayBuffer())]));
  }
  return stored;
}

export async function write(sandbox, req, query) {
  const user = userOf(sandbox, query);
  const type = req.headers['content-type'] ?? '';
  if (type.startsWith('application/octet-stream') && !isOlder(sandbox, '0.5.7')) {
    if (!query.get('path')) throw new Refusal(400, 'path is required');
    return [200, [await store(sandbox, query.get('path'), user, req)]];
  }
  if (!type.startsWith('multipart/form-data')) throw new Refusal(400, "request Content-Type isn't multipart/form-data");
  return [200, await fromForm(sandbox, req, query, user)];
}

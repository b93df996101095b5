// meaning.mjs - what a recorded request means, apart from how it is written: for comparing two clients.
import { frames, Recorder } from './recorder.mjs';

// How a client names itself, and what the connection alone is about.
const IGNORED = new Set([
  'host',
  'connection',
  'content-length',
  'transfer-encoding',
  'user-agent',
  'accept',
  'accept-encoding',
  'accept-language',
  'sec-fetch-mode',
  'expect',
  'browser',
  'lang',
  'lang_version',
  'package_version',
  'publisher',
  'sdk_runtime',
  'system',
  'te',
]);

function multipart(bytes, type) {
  const boundary = /boundary="?([^";]+)/.exec(type)[1];
  const parts = bytes.toString('latin1').split(`--${boundary}`).slice(1, -1);
  return parts.map((part) => {
    const [head, ...rest] = part.replace(/^\r\n/, '').split('\r\n\r\n');
    const fields = Object.fromEntries(
      head
        .split('\r\n')
        .map((line) => line.split(/: (.*)/s).slice(0, 2))
        .map(([k, v]) => [k.toLowerCase(), v]),
    );
    return { ...fields, bytes: rest.join('\r\n\r\n').replace(/\r\n$/, '') };
  });
}

function bodyOf(record) {
  const bytes = Recorder.body(record);
  const type = record.headers['content-type'] ?? '';
  if (bytes.length === 0) return undefined;
  if (type.startsWith('application/connect+json'))
    return Object.fromEntries(frames(bytes).map(([flags, value], i) => [`frame${i}`, { flags, value }]));
  if (type.startsWith('application/json')) return JSON.parse(bytes.toString('utf8'));
  if (type.startsWith('multipart/')) return multipart(bytes, type);
  return bytes.toString('latin1');
}

/** Method, path, query, headers and body, with names in place of what differs by nature: the words of `names`. */
export function meaning(record, names) {
  const named = (text) => {
    let out = text;
    for (const [word, name] of names) out = out.replaceAll(word, name);
    return out;
  };
  const headers = Object.entries(record.headers)
    .filter(([name]) => !IGNORED.has(name))
    .map(([name, value]) => [name, named(name === 'content-type' ? value.split(';')[0] : value)]);
  return {
    method: record.method,
    path: named(record.path),
    query: Object.fromEntries(new URLSearchParams(named(record.query))),
    headers: Object.fromEntries(headers),
    body: bodyOf(record),
  };
}

function flatten(value, at, into) {
  // An empty object says what an absent one says.
  if (value !== null && typeof value === 'object') {
    for (const [key, one] of Object.entries(value)) flatten(one, at ? `${at}.${key}` : key, into);
  } else if (value !== undefined) {
    into.set(at, value);
  }
  return into;
}

/** Where two meanings differ: [place, ours, theirs] each; undefined where one has nothing. */
export function differences(ours, theirs) {
  const [a, b] = [flatten(ours, '', new Map()), flatten(theirs, '', new Map())];
  const places = [...new Set([...a.keys(), ...b.keys()])].sort();
  return places
    .filter((place) => JSON.stringify(a.get(place)) !== JSON.stringify(b.get(place)))
    .map((place) => [place, a.get(place), b.get(place)]);
}

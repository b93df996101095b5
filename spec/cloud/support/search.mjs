// search.mjs - looks for secrets in everything that leaves a process, in the forms that a leak takes: as it is, hex,
// URL-escaped, JSON-escaped, and base64 in its three alignments and both alphabets. What cannot be opened throws.
import fs from 'node:fs';
import path from 'node:path';

const ALIGNMENTS = 3;

function base64At(bytes, offset) {
  const padded = Buffer.concat([Buffer.alloc(offset), bytes]);
  const whole = padded.subarray(0, padded.length - (padded.length % ALIGNMENTS)).toString('base64');
  // Foreign bytes reach into the first characters.
  return whole.slice(offset === 0 ? 0 : offset + 1);
}

function escaped(text, isUpper) {
  const hex = (byte) => `%${byte.toString(16).padStart(2, '0')}`;
  return [...Buffer.from(text)]
    .map((byte) => {
      const sign = String.fromCharCode(byte);
      return /[\w.~-]/.test(sign) ? sign : isUpper ? hex(byte).toUpperCase() : hex(byte);
    })
    .join('');
}

/** Forms of a secret, by name. */
export function forms(secret) {
  if (secret.length < 8) throw new Error('too short to search for');
  const bytes = Buffer.from(secret);
  const found = {
    plain: secret,
    hex: bytes.toString('hex'),
    'hex in capitals': bytes.toString('hex').toUpperCase(),
    'URL-escaped': escaped(secret, true),
    'URL-escaped in small letters': escaped(secret, false),
    'JSON with escaped slashes': secret.replaceAll('/', '\\/'),
  };
  for (let offset = 0; offset < ALIGNMENTS; offset += 1) {
    const text = base64At(bytes, offset);
    found[`base64 at ${offset}`] = text;
    found[`base64url at ${offset}`] = text.replaceAll('+', '-').replaceAll('/', '_');
  }
  return found;
}

export class Search {
  /** `secrets`: by name. */
  constructor(secrets) {
    this.wanted = Object.entries(secrets).flatMap(([name, secret]) =>
      Object.entries(forms(secret)).map(([form, text]) => [`${name}, ${form}`, Buffer.from(text)]),
    );
    this.searched = { bytes: 0, files: 0, processes: 0 };
  }

  /** What of the secrets stands in some bytes: names and forms. */
  in(bytes) {
    const text = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes);
    this.searched.bytes += text.length;
    return this.wanted.filter(([, form]) => text.includes(form)).map(([name]) => name);
  }

  /** The same below a folder, in contents, names and link targets; `except` are paths that hold what was planted. */
  below(folder, except = []) {
    const found = [];
    for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
      const full = path.join(folder, entry.name);
      if (except.includes(full)) continue;
      found.push(...this.in(entry.name).map((what) => `${full} (its name): ${what}`));
      if (entry.isDirectory()) {
        found.push(...this.below(full, except));
      } else if (entry.isSymbolicLink()) {
        found.push(...this.in(fs.readlinkSync(full)).map((what) => `${full} (its target): ${what}`));
      } else if (entry.isFile()) {
        this.searched.files += 1;
        found.push(...this.in(fs.readFileSync(full)).map((what) => `${full}: ${what}`));
      }
    }
    return found;
  }

  /** The same in the environment and the arguments of a process; one that ended meanwhile has none. */
  ofProcess(pid) {
    const found = [];
    let words = '';
    for (const part of ['cmdline', 'environ']) {
      let bytes;
      try {
        bytes = fs.readFileSync(`/proc/${pid}/${part}`);
      } catch (error) {
        if (error.code === 'ENOENT' || error.code === 'ESRCH') return found;
        throw error;
      }
      if (part === 'cmdline') words = bytes.toString('latin1').replaceAll('\0', ' ');
      found.push(...this.in(bytes).map((what) => `${part} of ${pid} (${words}): ${what}`));
    }
    this.searched.processes += 1;
    return found;
  }
}

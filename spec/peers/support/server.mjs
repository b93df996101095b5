// server.mjs - the program under test: where it is, the private home each client gives it, and what is left of it.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { sleep } from './cases.mjs';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
export const peers = path.join(root, 'spec/peers');
export const program = path.join(process.env.DML_BUILD_DIR ?? path.join(root, 'build'), 'demilune');

/** A home of its own for a server; the path is short, since unix socket paths are. */
export function makeHome() {
  return fs.mkdtempSync(path.join(process.env.DML_SPEC_TMP ?? os.tmpdir(), 'p-'));
}

/** How a client starts the server. HOME alone makes it private: clients hand on only a few variables, XDG_* not. */
export function parameters(home, args = ['serve']) {
  return {
    command: program,
    args,
    env: {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      LANG: 'C.UTF-8',
      HOME: home,
      ASAN_OPTIONS: 'detect_leaks=0:exitcode=99',
    },
  };
}

/** Runs a command of the program to its end. */
export function run(home, args, timeout = 20_000) {
  const { command, env } = parameters(home);
  return spawnSync(command, args, { env, timeout, encoding: 'utf8' });
}

/** Whether a process with that pid lives; a zombie does not. */
export function isAlive(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2));
  } catch {
    return false;
  }
}

/** Milliseconds until the process is gone, or null when it still lives after `limit`. */
export async function goneAfter(pid, limit) {
  const start = performance.now();
  while (performance.now() - start < limit) {
    if (!isAlive(pid)) return performance.now() - start;
    await sleep(10);
  }
  return isAlive(pid) ? null : limit;
}

/** Living processes that have the home in their command line or environment: servers and engines of it. */
export function processesOf(home) {
  const found = [];
  for (const entry of fs.readdirSync('/proc')) {
    if (!/^\d+$/.test(entry) || Number(entry) === process.pid || !isAlive(entry)) continue;
    try {
      const words = fs.readFileSync(`/proc/${entry}/environ`, 'latin1') + fs.readFileSync(`/proc/${entry}/cmdline`, 'latin1');
      if (words.includes(home)) found.push(Number(entry));
    } catch {
      // It ended meanwhile, or is not ours to read.
    }
  }
  return found;
}

/** "pid: command line" of some processes, for messages. */
export function describe(pids) {
  return pids.map((pid) => {
    try {
      return `${pid}: ${fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')}`;
    } catch {
      return `${pid}: ended meanwhile`;
    }
  });
}

/** What still lives of a home, described, once the engine has had 300 ms to end after `engine --stop` came back. */
export async function leftOf(home) {
  for (let i = 0; i < 30 && processesOf(home).length > 0; i += 1) await sleep(10);
  return describe(processesOf(home));
}

/** The processes below `pid`, at any depth. */
export function descendants(pid) {
  const parents = new Map();
  for (const entry of fs.readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = fs.readFileSync(`/proc/${entry}/stat`, 'utf8');
      parents.set(Number(entry), Number(stat.slice(stat.lastIndexOf(')') + 4).split(' ')[0]));
    } catch {
      // It ended meanwhile.
    }
  }
  const found = [pid];
  for (let i = 0; i < found.length; i += 1) {
    for (const [child, parent] of parents) if (parent === found[i]) found.push(child);
  }
  return found.slice(1);
}

/** Stops the engine of a home and removes the home; returns the exit status of `engine --stop`. */
export function removeHome(home) {
  const { status } = run(home, ['engine', '--stop']);
  fs.rmSync(home, { recursive: true, force: true });
  return status;
}

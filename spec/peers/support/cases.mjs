// cases.mjs - runs named cases one after the other and prints what spec/run.lua reads: failures, `skip: …` lines, and one
// closing line `N passed, N failed`. Not node:test: its report is not one line, and a hanging client must not hide it.
import assert from 'node:assert/strict';

export { assert };

const CASE_TIMEOUT_MS = 45_000;
let passed = 0;
let failed = 0;

/** Rejects after `ms`, so that no case waits for ever. The timer does not keep the process alive. */
export function within(ms, promise, what = 'it') {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took longer than ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** One case, of at most `ms`; returns whether it passed. */
export async function it(name, body, ms = CASE_TIMEOUT_MS) {
  try {
    await within(ms, Promise.resolve().then(body));
    passed += 1;
    return true;
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n  ${String(error?.stack ?? error).replaceAll('\n', '\n  ')}`);
    return false;
  }
}

export function skip(name, reason) {
  console.log(`skip: ${name}: ${reason}`);
}

export function finish() {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}

process.on('unhandledRejection', (error) => {
  failed += 1;
  console.log(`FAILED nothing is rejected unheard\n  ${String(error?.stack ?? error)}`);
});

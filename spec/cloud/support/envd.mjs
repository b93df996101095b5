// envd.mjs - process.Process and filesystem.Filesystem on the official Connect runtime, over real sandboxes.
import { message, require, service } from './wire.mjs';

const { Code, ConnectError, createContextKey, createContextValues } = require('@connectrpc/connect');
const { connectNodeAdapter } = require('@connectrpc/connect-node');
const { fromJson } = require('@bufbuild/protobuf');

const Process = service('process.Process');
const Filesystem = service('filesystem.Filesystem');
const EntryInfo = message(Filesystem, 'EntryInfo');
const FilesystemEvent = message(Filesystem, 'FilesystemEvent');
const KEEPALIVE_S = 90;
const SIGKILL = 9;
const CODES = {
  not_found: Code.NotFound,
  invalid_argument: Code.InvalidArgument,
  already_exists: Code.AlreadyExists,
  permission_denied: Code.PermissionDenied,
  failed_precondition: Code.FailedPrecondition,
  unavailable: Code.Unavailable,
  is_directory: Code.InvalidArgument,
};

const kSandbox = createContextKey(undefined, { description: 'the sandbox' });

/** Compares versions of envd. */
export function isOlder(sandbox, version) {
  const numbers = (text) => text.split('.').map(Number);
  const [a, b] = [numbers(sandbox.envdVersion), numbers(version)];
  const at = a.findIndex((number, i) => number !== b[i]);
  return at >= 0 && a[at] < b[at];
}

/** The user that a request names, "user" where it names none. Undefined: there is no such user. */
export function userNamed(sandbox, name) {
  if (name === undefined && isOlder(sandbox, '0.4.0')) return undefined;
  return name === undefined || name === 'user' ? 'user' : name === 'root' ? 'root' : undefined;
}

function userOf(context) {
  const basic = /^Basic (.+)$/.exec(context.requestHeader.get('authorization') ?? '')?.[1];
  const name = basic && Buffer.from(basic, 'base64').toString().split(':')[0];
  const user = userNamed(context.values.get(kSandbox), name);
  if (!user) throw new ConnectError('invalid username', Code.Unauthenticated);
  return user;
}

async function ask(context, op, fields) {
  try {
    return await context.values.get(kSandbox).call(op, fields);
  } catch (error) {
    throw new ConnectError(error.message, CODES[error.code] ?? Code.Internal);
  }
}

function selector(process) {
  return process?.selector?.case === 'tag' ? { tag: process.selector.value } : { pid: process?.selector?.value };
}

function keepaliveMs(context) {
  return Number(context.requestHeader.get('keepalive-ping-interval') ?? KEEPALIVE_S) * 1000;
}

const event = (name, value) => ({ event: { event: { case: name, value } } });

function endOf({ code, signal }) {
  if (signal) {
    const status = signal === SIGKILL ? 'signal: killed' : signal === 15 ? 'signal: terminated' : `signal: ${signal}`;
    return event('end', { exitCode: -1, exited: false, status, error: status });
  }
  const status = `exit status ${code}`;
  return event('end', { exitCode: code, exited: true, status, error: code ? status : undefined });
}

/** What a process says, until it ends or the client goes. */
async function* eventsOf(sandbox, begun, context) {
  const { pid, queue } = begun;
  yield event('start', { pid });
  try {
    for (;;) {
      const item = await queue.next(context.signal, keepaliveMs(context));
      if (context.signal.aborted) throw ConnectError.from(context.signal.reason);
      if (item === undefined) return;
      if (item === null) yield event('keepalive', {});
      else if (begun.isLate && item.ev === 'end') throw new ConnectError('context deadline exceeded', Code.DeadlineExceeded);
      else if (item.ev === 'end') yield endOf(item);
      else {
        yield event('data', { output: { case: item.ev, value: Buffer.from(item.data, 'base64') } });
        if (item.isPaced) sandbox.credit(pid);
      }
    }
  } finally {
    sandbox.detach(pid, queue);
  }
}

// The deadline of a Start is the life of the process, whether or not its client still listens.
async function* start(request, context) {
  const sandbox = context.values.get(kSandbox);
  const user = userOf(context);
  const { cmd, args, envs, cwd } = request.process;
  let begun;
  try {
    begun = await sandbox.start({
      user,
      tag: request.tag,
      config: { cmd, args, envs, cwd },
      pty: request.pty?.size ?? null,
      stdin: request.stdin ?? true,
    });
  } catch (error) {
    throw new ConnectError(error.message, CODES[error.code] ?? Code.Internal);
  }
  const lifeMs = Number(context.requestHeader.get('connect-timeout-ms') ?? 0);
  const end = () => {
    begun.isLate = true;
    sandbox.killIfThere(begun.pid);
  };
  if (lifeMs > 0) setTimeout(end, lifeMs).unref();
  yield* eventsOf(sandbox, begun, context);
}

async function* connect(request, context) {
  const sandbox = context.values.get(kSandbox);
  const { pid } = await ask(context, 'find', { process: selector(request.process) });
  yield* eventsOf(sandbox, { pid, queue: sandbox.attach(pid) }, context);
}

const processes = {
  start,
  connect,
  async list(_, context) {
    return { processes: await ask(context, 'list') };
  },
  async sendSignal(request, context) {
    if (![15, SIGKILL].includes(request.signal)) throw new ConnectError('signal', Code.Unimplemented);
    await ask(context, 'signal', { process: selector(request.process), signal: request.signal });
    return {};
  },
  async sendInput(request, context) {
    const data = Buffer.from(request.input?.input?.value ?? []).toString('base64');
    await ask(context, 'input', { process: selector(request.process), data });
    return {};
  },
  async closeStdin(request, context) {
    if (isOlder(context.values.get(kSandbox), '0.5.2')) throw new ConnectError('CloseStdin', Code.Unimplemented);
    await ask(context, 'close_stdin', { process: selector(request.process) });
    return {};
  },
  async update(request, context) {
    await ask(context, 'resize', { process: selector(request.process), size: request.pty?.size ?? {} });
    return {};
  },
};

function entryOf({ modifiedMs, ...entry }) {
  return fromJson(EntryInfo, { ...entry, modifiedTime: new Date(modifiedMs).toISOString() });
}

/** Watchers that are asked instead of streaming. */
async function createWatcher(request, context) {
  const sandbox = context.values.get(kSandbox);
  const watcher = await watchOf(sandbox, request, context);
  const id = `w${watcher.id}`;
  sandbox.watchers.set(id, watcher);
  return { watcherId: id };
}

async function watchOf(sandbox, request, context) {
  try {
    return await sandbox.watch({ path: request.path, recursive: request.recursive, user: userOf(context) });
  } catch (error) {
    throw new ConnectError(error.message, CODES[error.code] ?? Code.Internal);
  }
}

function changeOf({ name, type }) {
  return fromJson(FilesystemEvent, { name, type: `EVENT_TYPE_${type}` });
}

async function* watchDir(request, context) {
  const sandbox = context.values.get(kSandbox);
  const { id, queue } = await watchOf(sandbox, request, context);
  try {
    for (;;) {
      const item = await queue.next(context.signal, keepaliveMs(context));
      if (item === undefined || context.signal.aborted) return;
      if (item === null) yield { event: { case: 'keepalive', value: {} } };
      else if (item.type === 'START') yield { event: { case: 'start', value: {} } };
      else yield { event: { case: 'filesystem', value: changeOf(item) } };
    }
  } finally {
    sandbox.unwatch(id);
  }
}

function watcherOf(context, id) {
  const watcher = context.values.get(kSandbox).watchers.get(id);
  if (!watcher) throw new ConnectError(`watcher ${id} not found`, Code.NotFound);
  return watcher;
}

const files = {
  watchDir,
  createWatcher,
  async getWatcherEvents({ watcherId }, context) {
    const { queue } = watcherOf(context, watcherId);
    return {
      events: queue.items
        .splice(0)
        .filter((item) => item.type !== 'START')
        .map(changeOf),
    };
  },
  async removeWatcher({ watcherId }, context) {
    const sandbox = context.values.get(kSandbox);
    await sandbox.unwatch(watcherOf(context, watcherId).id);
    sandbox.watchers.delete(watcherId);
    return {};
  },
  async stat({ path }, context) {
    return { entry: entryOf(await ask(context, 'stat', { path, user: userOf(context) })) };
  },
  async listDir({ path, depth }, context) {
    return { entries: (await ask(context, 'list_dir', { path, depth, user: userOf(context) })).map(entryOf) };
  },
  async makeDir({ path }, context) {
    return { entry: entryOf(await ask(context, 'make_dir', { path, user: userOf(context) })) };
  },
  async move({ source, destination }, context) {
    return { entry: entryOf(await ask(context, 'move', { source, destination, user: userOf(context) })) };
  },
  async remove({ path }, context) {
    await ask(context, 'remove', { path, user: userOf(context) });
    return {};
  },
};

/** A handler of node's servers; `req.sandbox` is whose. */
export const handler = connectNodeAdapter({
  routes: (router) => router.service(Process, processes).service(Filesystem, files),
  contextValues: (req) => createContextValues().set(kSandbox, req.sandbox),
  grpc: false,
  grpcWeb: false,
});

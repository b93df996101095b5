"""What works inside one sandbox of the stand-in (server.mjs): processes, files and watches, asked for by JSON lines on
stdin and answered by JSON lines on stdout.

A request is {"id", "op", ...}, its answer {"id", "ok"} or {"id", "err", "message"}. What goes on by itself are events:
{"pid", "ev": "stdout" | "stderr" | "pty", "data"}, {"pid", "ev": "end", "code", "signal"} and {"watch", "name", "type"}.
At most CREDITS pieces of one process are on their way: the server gives a credit back for each that it has passed on.
As in E2B's envd a signal hits the process alone, and a process has ended once its pipes are closed.
"""
import base64
import ctypes
import fcntl
import grp
import json
import os
import pwd
import shutil
import signal
import stat
import struct
import subprocess
import sys
import termios
import threading

PIECE = 32768
CREDITS = 16
HOMES = {"user": "/home/user", "root": "/root"}

out_lock = threading.Lock()
processes = {}
uploads = {}
watches = {}


class Fault(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def send(message):
    line = json.dumps(message).encode() + b"\n"
    with out_lock:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def resolve(path, user):
    home = HOMES[user]
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return os.path.normpath(os.path.join(home, path))


# ---- processes ----

class Process:
    def __init__(self, request):
        self.config = request["config"]
        self.tag = request.get("tag")
        self.credits = threading.Semaphore(CREDITS)
        self.master = None
        user = request["user"]
        argv = [self.config["cmd"], *self.config.get("args", [])]
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": HOMES[user], "USER": user,
               "LOGNAME": user, **request["envs"], **self.config.get("envs", {})}
        if user == "root":
            argv = ["/usr/bin/unshare", "--map-root-user", *argv]
        cwd = resolve(self.config.get("cwd") or HOMES[user], user)
        if not os.path.isdir(cwd):
            raise Fault("invalid_argument", "cwd '%s' does not exist" % cwd)
        if shutil.which(self.config["cmd"], path=env["PATH"]) is None:
            raise Fault("invalid_argument", "'%s' cannot be run" % self.config["cmd"])
        self.start(argv, env, cwd, request)

    def start(self, argv, env, cwd, request):
        if request.get("pty"):
            self.master, slave = os.openpty()
            self.resize(request["pty"])
            self.child = subprocess.Popen(argv, env=env, cwd=cwd, stdin=slave, stdout=slave, stderr=slave,
                                          start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
            os.close(slave)
            self.streams = [("pty", self.master)]
        else:
            stdin = subprocess.PIPE if request.get("stdin") else subprocess.DEVNULL
            self.child = subprocess.Popen(argv, env=env, cwd=cwd, stdin=stdin, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, start_new_session=True)
            self.streams = [("stdout", self.child.stdout.fileno()), ("stderr", self.child.stderr.fileno())]

    def resize(self, size):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", size.get("rows", 24), size.get("cols", 80), 0, 0))

    def follow(self):
        threads = [threading.Thread(target=self.read, args=stream, daemon=True) for stream in self.streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        code = self.child.wait()
        processes.pop(self.child.pid, None)
        send({"pid": self.child.pid, "ev": "end", "code": max(code, -1), "signal": -code if code < 0 else 0})

    def read(self, name, fd):
        while True:
            try:
                data = os.read(fd, PIECE)
            except OSError:
                data = b""
            if not data:
                return
            self.credits.acquire()
            send({"pid": self.child.pid, "ev": name, "data": base64.b64encode(data).decode()})


def find(selector):
    for pid, process in list(processes.items()):
        if pid == selector.get("pid") or (selector.get("tag") is not None and process.tag == selector["tag"]):
            return process
    raise Fault("not_found", "process %s not found" % json.dumps(selector))


def op_start(request):
    process = Process(request)
    processes[process.child.pid] = process
    return {"pid": process.child.pid}


def op_follow(request):
    threading.Thread(target=processes[request["pid"]].follow, daemon=True).start()


def op_credit(request):
    process = processes.get(request["pid"])
    if process:
        process.credits.release()


def op_find(request):
    return {"pid": find(request["process"]).child.pid}


def op_list(_):
    return [{"pid": pid, "config": p.config, "tag": p.tag} for pid, p in sorted(processes.items())]


def op_signal(request):
    os.kill(find(request["process"]).child.pid, request["signal"])


def op_input(request):
    process = find(request["process"])
    data = base64.b64decode(request["data"])
    if process.master is not None:
        os.write(process.master, data)
    elif process.child.stdin is None:
        raise Fault("failed_precondition", "stdin is not open")
    else:
        process.child.stdin.write(data)
        process.child.stdin.flush()


def op_close_stdin(request):
    process = find(request["process"])
    if process.child.stdin is None:
        raise Fault("failed_precondition", "stdin is not open")
    process.child.stdin.close()


def op_resize(request):
    find(request["process"]).resize(request["size"])


def op_freeze(request):
    """Stops or continues all processes here but this one and the first."""
    try:
        os.kill(-1, signal.SIGSTOP if request["is_frozen"] else signal.SIGCONT)
    except ProcessLookupError:
        pass  # nothing else runs


# ---- files ----

def name_of(lookup, number):
    try:
        return lookup(number)[0]
    except KeyError:
        return str(number)


def entry(path):
    info = os.lstat(path)
    kind = "SYMLINK" if stat.S_ISLNK(info.st_mode) else "DIRECTORY" if stat.S_ISDIR(info.st_mode) else "FILE"
    made = {
        "name": os.path.basename(path) or "/", "type": "FILE_TYPE_" + kind, "path": path, "size": str(info.st_size),
        "mode": stat.S_IMODE(info.st_mode), "permissions": stat.filemode(info.st_mode),
        "owner": name_of(pwd.getpwuid, info.st_uid), "group": name_of(grp.getgrgid, info.st_gid),
        "modifiedMs": info.st_mtime_ns // 1000000,
    }
    if kind == "SYMLINK":
        made["symlinkTarget"] = os.readlink(path)
    return made


def op_stat(request):
    return entry(resolve(request["path"], request["user"]))


def op_list_dir(request):
    top = resolve(request["path"], request["user"])
    if not os.path.isdir(top):
        os.lstat(top)
        raise Fault("invalid_argument", "path is not a directory: %s" % top)
    found = []

    def walk(folder, depth):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            found.append(entry(path))
            if depth > 1 and os.path.isdir(path) and not os.path.islink(path):
                walk(path, depth - 1)

    walk(top, max(1, request.get("depth") or 1))
    return found


def op_make_dir(request):
    path = resolve(request["path"], request["user"])
    if os.path.isdir(path):
        raise Fault("already_exists", "directory already exists: %s" % path)
    os.makedirs(path)
    return entry(path)


def op_move(request):
    source, destination = (resolve(request[key], request["user"]) for key in ("source", "destination"))
    os.lstat(source)
    os.makedirs(os.path.dirname(destination), exist_ok=True)
    os.rename(source, destination)
    return entry(destination)


def op_remove(request):
    path = resolve(request["path"], request["user"])
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def op_read(request):
    path = resolve(request["path"], request["user"])
    with open(path, "rb") as file:
        file.seek(request["offset"])
        data = file.read(request["length"])
        return {"data": base64.b64encode(data).decode(), "size": os.fstat(file.fileno()).st_size}


def op_open_write(request):
    path = resolve(request["path"], request["user"])
    if os.path.isdir(path):
        raise Fault("is_directory", "path is a directory: %s" % path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    uploads[request["id"]] = open(path, "wb")
    return {"upload": request["id"], "path": path, "name": os.path.basename(path)}


def op_write(request):
    uploads[request["upload"]].write(base64.b64decode(request["data"]))


def op_close_write(request):
    uploads.pop(request["upload"]).close()


# ---- watches ----

CREATE, WRITE, REMOVE, CHMOD, MOVED_FROM, MOVED_TO = 0x100, 0x2, 0x200, 0x4, 0x40, 0x80
TYPES = {CREATE: "CREATE", WRITE: "WRITE", REMOVE: "REMOVE", CHMOD: "CHMOD", MOVED_FROM: "RENAME", MOVED_TO: "CREATE"}
libc = ctypes.CDLL(None, use_errno=True)


def follow_watch(number, fd, top, is_recursive):
    folders = {}

    def add(folder):
        folders[libc.inotify_add_watch(fd, folder.encode(), sum(TYPES))] = folder
        if is_recursive:
            for item in os.scandir(folder):
                if item.is_dir(follow_symlinks=False):
                    add(item.path)

    add(top)
    send({"watch": number, "type": "START"})
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:
            return
        while data:
            watch, mask, _, length = struct.unpack_from("iIII", data)
            name = data[16:16 + length].rstrip(b"\0").decode(errors="replace")
            data = data[16 + length:]
            path = os.path.join(folders.get(watch, top), name)
            if is_recursive and mask & CREATE and os.path.isdir(path):
                add(path)
            for bit, kind in TYPES.items():
                if mask & bit and name:
                    send({"watch": number, "type": kind, "name": os.path.relpath(path, top)})


def op_watch(request):
    top = resolve(request["path"], request["user"])
    if not os.path.isdir(top):
        os.lstat(top)
        raise Fault("invalid_argument", "path is not a directory: %s" % top)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    watches[request["id"]] = fd
    threading.Thread(target=follow_watch, args=(request["id"], fd, top, request.get("recursive", False)), daemon=True).start()


def op_unwatch(request):
    # The thread that reads it stays until the sandbox ends: closing alone does not wake it.
    watches.pop(request["watch"], None)


CODES = {FileNotFoundError: "not_found", IsADirectoryError: "is_directory", PermissionError: "permission_denied",
         NotADirectoryError: "invalid_argument", ProcessLookupError: "not_found", BrokenPipeError: "failed_precondition"}


def answer(request):
    try:
        send({"id": request["id"], "ok": globals()["op_" + request["op"]](request)})
    except Fault as fault:
        send({"id": request["id"], "err": fault.code, "message": str(fault)})
    except OSError as fault:
        send({"id": request["id"], "err": CODES.get(type(fault), "internal"), "message": str(fault)})
    except Exception as fault:  # pylint: disable=broad-except
        send({"id": request["id"], "err": "internal", "message": repr(fault)})


for line in sys.stdin.buffer:
    answer(json.loads(line))

--- kernel_python.lua - the Python side of a kernel: a program that runs code piece by piece and
--- keeps what it defines. Data only; kernel_process.lua talks to it.
--
-- It takes requests from its first stdin and answers on its first stdout, both moved to
-- descriptors that no child inherits; what user code prints goes another way, so it cannot pass for
-- an answer by accident. By intent it can: code in the same process may do anything, and the engine
-- trusts none of this. Frames are those of connect.lua: a zero byte, four bytes of length, JSON.
local kernel_python = {}

--- For `python3 -c`: takes the program itself from stdin, so that it is no file and no argument.
--- Nothing in the working directory may stand for a module of the library while it loads.
kernel_python.BOOT = [[
import os, sys
sys.path[:] = [p for p in sys.path if p]
def take(n):
    b = b""
    while len(b) < n:
        c = os.read(0, n - len(b))
        if not c: os._exit(0)
        b += c
    return b
exec(compile(take(int.from_bytes(take(5), "big")), "<kernel>", "exec"), {"__name__": "kernel"})
]]

kernel_python.PROGRAM = [==[
import ast, builtins, codecs, fcntl, io, json, linecache, os, select, signal, sys, threading, time
import traceback, types
from base64 import b64encode

PIECE = 32768              # characters of output in one frame
BATCH = 16384              # characters of output that are sent at once
BATCH_S = 0.03             # how long fewer wait for more
DRAIN = 1024 * 1024        # bytes of children's output that the end of an execution waits for
TEXT_MAX = 1024 * 1024     # characters of one text
FORMATS_MAX = 6 * 1024 * 1024  # of all formats of one result
TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
COROUTINE = 0x80           # inspect.CO_COROUTINE
REPRS = {"_repr_html_": "html", "_repr_markdown_": "markdown", "_repr_svg_": "svg",
         "_repr_png_": "png", "_repr_jpeg_": "jpeg", "_repr_pdf_": "pdf", "_repr_latex_": "latex",
         "_repr_json_": "json", "_repr_javascript_": "javascript"}
MIMES = {"text/plain": "text", "text/html": "html", "text/markdown": "markdown",
         "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
         "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
         "application/javascript": "javascript"}

# ---- descriptors ----

def move(fd):
    for low in (100, 3):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, low)
        except OSError:
            pass
    os._exit(70)

def open_output(fd):
    ours, theirs = os.pipe()
    os.dup2(theirs, fd)
    os.close(theirs)
    os.set_blocking(ours, False)
    return move(ours)

REQUESTS, REPLIES = move(0), move(1)
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0)
os.close(null)
PRINTED = {"stdout": open_output(1), "stderr": open_output(2)}
printed = select.poll()
for fd in PRINTED.values():
    printed.register(fd, select.POLLIN)
DECODERS = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in PRINTED}
WOKEN, WAKE = (move(fd) for fd in os.pipe())
os.set_blocking(WAKE, False)

# ---- state, and interrupts ----

class State:
    execution = 0      # 0: none, and output is thrown away
    number = 0
    is_running = False # user code is
    is_forked = False
    held = 0           # the main thread must not be interrupted here
    is_late = False    # it was to be

state = State()
lock = threading.RLock()
main_thread = threading.get_ident()
loop = None

def on_interrupt(signo, frame):
    if not state.is_running:
        return
    if state.held:
        state.is_late = True
        return
    raise KeyboardInterrupt

class Whole:
    """What is sent is sent to its end."""
    def __enter__(self):
        if threading.get_ident() == main_thread:
            state.held += 1
        lock.acquire()

    def __exit__(self, *raised):
        lock.release()
        if threading.get_ident() != main_thread:
            return
        state.held -= 1
        if not state.held and state.is_late:
            state.is_late = False
            raise KeyboardInterrupt

whole = Whole()

# ---- frames ----

def take(n):
    parts = b""
    while len(parts) < n:
        part = os.read(REQUESTS, min(n - len(parts), 65536))
        if not part:
            os._exit(0)
        parts += part
    return parts

def send(kind, **fields):
    fields.update(type=kind, id=state.execution)
    data = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    data = memoryview(len(data).to_bytes(5, "big") + data)
    with whole:
        try:
            while data:
                data = data[os.write(REPLIES, data):]
        except OSError:
            os._exit(70)

# ---- output ----

waiting, waiting_len = [], 0

def flush():
    global waiting_len
    with whole:
        pieces, waiting_len = waiting[:], 0
        waiting.clear()
        at = 0
        while at < len(pieces) and state.execution:
            name, texts = pieces[at][0], []
            while at < len(pieces) and pieces[at][0] == name:
                texts.append(pieces[at][1])
                at += 1
            text = "".join(texts)
            for i in range(0, len(text), PIECE):
                send(name, text=text[i:i + PIECE])

def append(name, text):
    global waiting_len
    if not text:
        return
    is_first = not waiting
    waiting.append((name, text))
    waiting_len += len(text)
    if waiting_len >= BATCH:
        flush()
    elif is_first:
        try:
            os.write(WAKE, b"x")
        except BlockingIOError:
            pass

def take_printed(most):
    with whole:
        for name, fd in PRINTED.items():
            left = most
            while left > 0:
                try:
                    data = os.read(fd, 65536)
                except (BlockingIOError, InterruptedError):
                    break
                if not data:
                    break
                left -= len(data)
                append(name, DECODERS[name].decode(data))

def put(name, text):
    with whole:
        if printed.poll(0): # by children, before this
            take_printed(65536)
        append(name, text)

def pump():
    poll = select.poll()
    for fd in (WOKEN, *PRINTED.values()):
        poll.register(fd, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if WOKEN in ready:
            os.read(WOKEN, 4096)
            time.sleep(BATCH_S)
        take_printed(65536)
        flush()

class Printed(io.TextIOBase):
    encoding, errors = "utf-8", "backslashreplace"

    def __init__(self, name, fd):
        self.name, self.fd = "<%s>" % name, fd
        self.kind = name
        self.buffer = open(fd, "wb", buffering=0, closefd=False)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        if state.is_forked:
            self.buffer.write(text.encode("utf-8", "backslashreplace"))
        else:
            put(self.kind, text)
        return len(text)

    def flush(self):
        if not state.is_forked:
            flush()

    def writable(self):
        return True

    def fileno(self):
        return self.fd

def before_fork():
    lock.acquire()
    flush()

def after_fork():
    lock.release()

def in_child():
    global lock
    lock = threading.RLock()
    state.is_forked = True
    for fd in (REQUESTS, REPLIES, WOKEN, WAKE, *PRINTED.values()):
        try:
            os.close(fd)
        except OSError:
            pass

# ---- results ----

def cut(text):
    text = str(text)
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "\u2026"

def plain(value):
    """A value that JSON can hold, or None."""
    if isinstance(value, tuple) and value:
        value = value[0]
    if isinstance(value, (bytes, bytearray)):
        return b64encode(value).decode()
    if value is None or isinstance(value, str):
        return value
    try:
        json.dumps(value)
        return value
    except (TypeError, ValueError, RecursionError):
        return None

def figure_png(value):
    figure = sys.modules.get("matplotlib.figure")
    if not figure or not isinstance(value, figure.Figure):
        return None
    data = io.BytesIO()
    value.savefig(data, format="png", bbox_inches="tight")
    return data.getvalue()

def rich(value):
    found, kind = {}, type(value)
    if isinstance(value, type):
        return found
    if getattr(kind, "_repr_mimebundle_", None):
        bundle = value._repr_mimebundle_()
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        found = {MIMES[mime]: plain(data) for mime, data in (bundle or {}).items() if mime in MIMES}
    for method, name in REPRS.items():
        if name not in found and getattr(kind, method, None):
            try:
                found[name] = plain(getattr(value, method)())
            except Exception:
                pass
    if "png" not in found:
        found["png"] = plain(figure_png(value))
    return found

def show(value, is_main):
    try:
        found = rich(value)
    except Exception:
        found = {}
    formats, left = {"text": cut(found.pop("text", None) or repr(value))}, FORMATS_MAX
    for name, data in found.items():
        size = len(data) if isinstance(data, str) else len(json.dumps(data))
        if data is not None and size <= left:
            formats[name] = data
            left -= size
    take_printed(DRAIN)
    flush()
    send("result", main=is_main, formats=formats)

def display(*values, **ignored):
    for value in values:
        show(value, False)

def show_figures():
    plot = sys.modules.get("matplotlib.pyplot")
    if not plot or not hasattr(plot, "get_fignums"):
        return
    for number in plot.get_fignums():
        show(plot.figure(number), False)
    plot.close("all")

def words(value):
    try:
        return cut(value)
    except BaseException:
        return "<unprintable %s>" % type(value).__name__

def tell_error(raised):
    name = type(raised).__name__
    trace = raised.__traceback__
    while trace and trace.tb_frame.f_code.co_filename == "<kernel>":
        trace = trace.tb_next
    try:
        told = traceback.TracebackException(type(raised), raised, trace)
        text = "".join(told.format())
    except BaseException:
        text = "%s: %s" % (name, words(raised))
    take_printed(DRAIN)
    flush()
    send("error", name=name, value=words(raised), traceback=cut(text))

# ---- executions ----

def evaluate(code):
    global loop
    value = eval(code, space)
    if code.co_flags & COROUTINE:
        import asyncio
        if loop is None or loop.is_closed():
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
        value = loop.run_until_complete(value)
    return value

def is_silenced(source, node):
    line = source.split("\n")[node.end_lineno - 1].encode()
    return line[node.end_col_offset:].lstrip().startswith(b";")

def run(source):
    name = "<cell %d>" % state.number
    source = source.replace("\r\n", "\n")
    linecache.cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)
    tree = compile(source, name, "exec", ast.PyCF_ONLY_AST | TOP_LEVEL_AWAIT, True)
    last = tree.body[-1] if tree.body else None
    has_value = isinstance(last, ast.Expr) and not is_silenced(source, last)
    if has_value:
        tree.body.pop()
    if tree.body:
        evaluate(compile(tree, name, "exec", TOP_LEVEL_AWAIT, True))
    if not has_value:
        return
    value = evaluate(compile(ast.Expression(last.value), name, "eval", TOP_LEVEL_AWAIT, True))
    if value is not None and not state.is_forked:
        space["_"] = value
        show(value, True)

def leave_child(raised):
    if raised and not isinstance(raised, SystemExit):
        traceback.print_exception(type(raised), raised, raised.__traceback__)
    os._exit(1 if raised else 0)

def attempt(action, *args):
    raised = None
    try:
        try:
            state.is_running = True
            action(*args)
        finally:
            state.is_running = False
    except BaseException as err:
        state.is_running = state.is_late = False
        raised = err
    if state.is_forked:
        leave_child(raised)
    if raised:
        tell_error(raised)

def execute(request):
    env = request.get("env") or {}
    before = {name: os.environ.get(name) for name in env}
    signal.signal(signal.SIGINT, on_interrupt)
    os.environ.update(env)
    state.execution, state.number = request["id"], state.number + 1
    attempt(run, request["code"])
    attempt(show_figures)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    take_printed(DRAIN)
    flush()
    send("done")
    state.execution = 0

signal.signal(signal.SIGINT, on_interrupt)
os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=in_child)
sys.stdin = sys.__stdin__ = open(0, "r", closefd=False)
sys.stdout = sys.__stdout__ = Printed("stdout", 1)
sys.stderr = sys.__stderr__ = Printed("stderr", 2)
sys.argv, builtins.display = [""], display
os.environ.setdefault("MPLBACKEND", "agg")
main = sys.modules["__main__"] = types.ModuleType("__main__")
main.__builtins__ = builtins
space = main.__dict__
threading.Thread(target=pump, name="output", daemon=True).start()
send("ready")
sys.path.insert(0, "")
while True:
    execute(json.loads(take(int.from_bytes(take(5), "big"))))
]==]

return kernel_python

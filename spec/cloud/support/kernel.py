"""A Python kernel of the stand-in: one process a context, which keeps its variables. Reads one request a line,
{"code", "env_vars"}, and writes what the code-interpreter's server streams, ended by end_of_execution."""
import ast
import json
import os
import sys
import threading
import traceback
from datetime import datetime, timezone

FORMATS = {"html": "_repr_html_", "markdown": "_repr_markdown_", "svg": "_repr_svg_", "png": "_repr_png_", "jpeg": "_repr_jpeg_",
           "latex": "_repr_latex_", "json": "_repr_json_", "javascript": "_repr_javascript_"}

answers = os.fdopen(os.dup(1), "w")
requests = os.fdopen(os.dup(0), "r")
lock = threading.Lock()


def tell(kind, **fields):
    with lock:
        answers.write(json.dumps({"type": kind, **fields}) + "\n")
        answers.flush()


class Pipe:
    """One of the two output descriptors; what children of the code write comes through here too."""

    MARK = b"\0\0end of this execution\0\0"

    def __init__(self, fd, kind):
        reader, self.writer = os.pipe()
        os.dup2(self.writer, fd)
        self.fd = fd
        self.kind = kind
        self.passed = threading.Event()
        threading.Thread(target=self.follow, args=(reader,), daemon=True).start()

    def follow(self, reader):
        kept = b""
        while True:
            kept += os.read(reader, 65536)
            text, found, rest = kept.partition(self.MARK)
            if text:
                now = datetime.now(timezone.utc).isoformat()
                tell(self.kind, text=text.decode(errors="replace"), timestamp=now)
            kept = rest if found else b""
            if found:
                self.passed.set()

    def drain(self):
        os.write(self.fd, self.MARK)
        self.passed.wait(5)
        self.passed.clear()


def result_of(value):
    result = {"text": repr(value)}
    for name, method in FORMATS.items():
        if hasattr(type(value), method):
            made = getattr(value, method)()
            if made is not None:
                result[name] = made
    return result


def run(code, variables):
    tree = ast.parse(code, "<cell>", "exec")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), variables)
    if last:
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), variables)
        if value is not None:
            return result_of(value)
    return None


def main():
    pipes = [Pipe(1, "stdout"), Pipe(2, "stderr")]
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    sys.stdout = os.fdopen(1, "w", 1, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, closefd=False)
    variables = {"__name__": "__main__"}
    count = 0
    while True:
        try:
            line = requests.readline()
        except KeyboardInterrupt:
            continue
        if not line:
            return
        request = json.loads(line)
        os.environ.update(request.get("env_vars") or {})
        count += 1
        fault = result = None
        try:
            result = run(request["code"], variables)
        except BaseException as error:  # pylint: disable=broad-except
            fault = error
        sys.stdout.flush()
        sys.stderr.flush()
        for pipe in pipes:
            pipe.drain()
        if result:
            tell("result", is_main_result=True, **result)
        if fault:
            tell("error", name=type(fault).__name__, value=str(fault), traceback="".join(traceback.format_exception(fault)))
        tell("number_of_executions", execution_count=count)
        tell("end_of_execution")


main()

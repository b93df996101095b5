#!/usr/bin/env python3
"""terminal.py ANSWER PROGRAM ARG... - runs a program with a terminal on stdin, stdout and stderr, types ANSWER when it
is asked "[y/N]", and prints what the terminal showed. Exits as the program did; 99 after 20 s."""
import os
import pty
import select
import sys
import time

answer, argv = sys.argv[1], sys.argv[2:]
pid, master = pty.fork()
if pid == 0:
    os.execv(argv[0], argv)
shown, is_answered, deadline = b"", False, time.monotonic() + 20
while time.monotonic() < deadline:
    if not select.select([master], [], [], 0.1)[0]:
        continue
    try:
        piece = os.read(master, 65536)
    except OSError:  # the other end is closed
        break
    if not piece:
        break
    shown += piece
    if not is_answered and b"[y/N]" in shown:
        is_answered = True
        os.write(master, answer.encode() + b"\n")
else:
    os.kill(pid, 9)
status = os.waitpid(pid, 0)[1]
sys.stdout.buffer.write(shown)
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 99)

#!/usr/bin/env python3
"""A worker of the fence that was taken over: loads as a good one does, then answers with what is in the file "answer"."""
import os
import struct
import sys
import time

INTEGER, STRING, NULL, MAP = 3, 5, 0, 9
LOADED, RESULT = 5, 6


def integer(n):
    return struct.pack("<Bq", INTEGER, n)


def string(s):
    return struct.pack("<BI", STRING, len(s)) + s


def frame(kind, payload):
    return struct.pack("<IB", len(payload), kind) + payload


COUNTERS = integer(100) + integer(1) + integer(1000) + integer(0)


def result(decision=0, reason=b"", has_reason=0, args=1, values=None):
    values = bytes([NULL, NULL]) if values is None else values
    return COUNTERS + integer(decision) + integer(has_reason) + string(reason) + integer(1) + integer(args) + values


def fault(kind, limit, line, file, text):
    return COUNTERS + integer(kind) + integer(limit) + integer(line) + string(file) + string(text)


ANSWERS = {
    "good": lambda: frame(RESULT, result()),
    "garbage": lambda: os.urandom(4096),
    "zeros": lambda: bytes(4096),
    "empty": lambda: frame(RESULT, b""),
    "huge_length": lambda: struct.pack("<IB", 0xFFFFFFFF, RESULT),
    "wrong_kind": lambda: frame(LOADED, COUNTERS + bytes([NULL])),
    "unknown_kind": lambda: frame(200, b""),
    "need": lambda: frame(4, string(b"m")),
    "two_frames": lambda: frame(RESULT, result()) + frame(RESULT, result()),
    "bytes_behind": lambda: frame(RESULT, result() + b"x"),
    "no_such_decision": lambda: frame(RESULT, result(decision=4)),
    "negative_decision": lambda: frame(RESULT, result(decision=-1)),
    "long_reason": lambda: frame(RESULT, result(decision=2, has_reason=1, reason=b"x" * 3000)),
    "too_many_args": lambda: frame(RESULT, result(args=2, values=bytes(3))),
    "no_args": lambda: frame(RESULT, result(args=0, values=bytes(1))),
    "view_that_is_none": lambda: frame(RESULT, result(values=struct.pack("<BIB", 6, 0, NULL))),
    "function": lambda: frame(RESULT, result(values=bytes([7, NULL]))),
    "unknown_tag": lambda: frame(RESULT, result(values=bytes([10, NULL]))),
    "list_without_items": lambda: frame(RESULT, result(values=struct.pack("<BI", 8, 0xFFFFFFFF))),
    "deep": lambda: frame(RESULT, result(values=struct.pack("<BI", 8, 1) * 5000 + bytes(2))),
    "many": lambda: frame(RESULT, result(values=struct.pack("<BI", 8, 300000) + bytes(300001))),
    "nan": lambda: frame(RESULT, result(values=struct.pack("<Bd", 4, float("nan")) + bytes(1))),
    "key_beyond": lambda: frame(RESULT, result(values=struct.pack("<BII", MAP, 1, 0xFFFFFFF0))),
    "many_logs": lambda: frame(RESULT, integer(1) * 3 + integer(1 << 40)),
    "long_log": lambda: frame(RESULT, integer(1) * 3 + integer(1) + string(b"x" * 257)),
    "negative_counters": lambda: frame(RESULT, integer(-1) * 3 + integer(0)),
    "fault_without_limit": lambda: frame(7, fault(2, 0, 1, b"", b"")),
    "fault_of_ours": lambda: frame(7, fault(4, 0, 1, b"", b"")),
    "fault_wall": lambda: frame(7, fault(2, 4, 1, b"", b"")),
    "fault_long_file": lambda: frame(7, fault(1, 0, 1, b"f" * 60, b"")),
    "fault_nul_file": lambda: frame(7, fault(1, 0, 1, b"f\0g", b"")),
    "fault_long_text": lambda: frame(7, fault(1, 0, 1, b"", b"x" * 3000)),
    "fault_line": lambda: frame(7, fault(1, 0, 1 << 40, b"", b"")),
    "fault_escape": lambda: frame(7, fault(1, 0, 1, b"\x1b[2J\n", b"\x1b]0;x\x07\xff\n")),
    "unasked": lambda: frame(RESULT, result()),
    "hang_up": lambda: b"",
    "half": lambda: frame(RESULT, result())[:20],
    "exit": lambda: b"",
}


def receive():
    header = b""
    while len(header) < 5:
        more = os.read(3, 5 - len(header))
        if not more:
            sys.exit(0)
        header += more
    left = struct.unpack("<IB", header)[0]
    while left:
        left -= len(os.read(3, min(left, 65536)))


def main():
    with open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "answer"), encoding="ascii") as file:
        name = file.read()
    receive()
    os.write(3, frame(LOADED, COUNTERS + struct.pack("<BI", MAP, 0)))
    if name == "unasked":
        os.write(3, ANSWERS[name]())
    receive()
    if name == "exit":
        sys.exit(0)
    data = ANSWERS[name]()
    while data:
        data = data[os.write(3, data):]
    if name == "hang_up":
        os.close(3)
    time.sleep(60)


main()

"""A server that answers wrongly, for hostile_spec.lua: `hostile.py SOCKET`. The path of a request names its answer."""
import os
import socket
import sys
import threading
import time

HEAD = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {
    "/nothing": b"",
    "/garbage": b"\x00\x01\x02 this is not HTTP\r\n\r\n",
    "/http09": b"<html>hello</html>",
    "/half-head": HEAD + b"Content-Len",
    "/short": HEAD + b"Content-Length: 10\r\n\r\nhello",
    "/cut-chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\na\r\nhello",
    "/cut-chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "/bad-chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "/bad-length": HEAD + b"Content-Length: five\r\n\r\nhello",
    "/minus-length": HEAD + b"Content-Length: -5\r\n\r\nhello",
    "/bad-name": HEAD + b"X Y: z\r\nContent-Length: 5\r\n\r\nhello",
    "/control": HEAD + b"X: a\x01b\r\nContent-Length: 5\r\n\r\nhello",
    "/nul": HEAD + b"X: a\x00b\r\nContent-Length: 5\r\n\r\nhello",
    "/no-colon": HEAD + b"what\r\nContent-Length: 5\r\n\r\nhello",
    "/big-head": HEAD + b"X: " + b"x" * 70000 + b"\r\nContent-Length: 5\r\n\r\nhello",
    "/long-head": HEAD + b"".join(b"X%d: %s\r\n" % (i, b"y" * 1000) for i in range(100)) + b"\r\n",
    "/many-heads": HEAD + b"X: y\r\n" * 300 + b"\r\n",
    "/status": b"HTTP/1.1 99 Odd\r\nContent-Length: 5\r\n\r\nhello",
    "/interim": b"HTTP/1.1 100 Continue\r\nX: lost\r\n\r\nHTTP/1.1 103 Early\r\nX: lost\r\n\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello",
    "/interim-only": b"HTTP/1.1 100 Continue\r\n\r\n",
    "/to-the-end": HEAD + b"Connection: close\r\n\r\nhello",
    "/trailers": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Late: y\r\n\r\n",
    "/duplicates": HEAD + b"X: 1\r\nX: 2\r\nContent-Length: 5\r\n\r\nhello",
    "/huge-length": HEAD + b"Content-Length: 9000000000000000000\r\n\r\nhello",
}


def endless(connection):
    connection.sendall(HEAD + b"Connection: close\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def endless_head(connection):
    connection.sendall(HEAD)
    while True:
        connection.sendall(b"X: " + b"x" * 1000 + b"\r\n")


deaths = {}


def read_head(connection):
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(65536)
        if not piece:
            raise OSError
        head += piece
    return head.split(b" ")[0].decode(), head.split(b" ")[1].decode()


def serve(connection):
    try:
        method, path = read_head(connection)
        # Answers once and keeps the connection, to die on what follows.
        while path == "/again":
            body = b"%d" % deaths.get(method, 0)
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            method, path = read_head(connection)
        if path == "/die":
            deaths[method] = deaths.get(method, 0) + 1
        elif path == "/endless":
            endless(connection)
        elif path == "/endless-head":
            endless_head(connection)
        elif path == "/silent":
            time.sleep(20)
        elif path == "/reset":
            connection.sendall(HEAD + b"Content-Length: 10\r\n\r\nhello")
            time.sleep(0.02)
        else:
            connection.sendall(ANSWERS[path])
    except OSError:
        pass
    finally:
        connection.close()


listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + ".new")
listener.listen(64)
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

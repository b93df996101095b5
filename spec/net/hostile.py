"""A server that answers wrongly: `hostile.py SOCKET [CERTIFICATES]`. The path of a request names its answer.

With a folder of certificates (NAME.pem, NAME.key) it does the same on ports of 127.0.0.1: one over plain TCP, one over TLS with
each certificate, some that never get as far, and a proxy. `SOCKET.ports` says which, as JSON, before the socket is there.
"""
import json
import os
import re
import socket
import ssl
import struct
import sys
import threading
import time
import warnings

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
    "/no-goodbye": HEAD + b"Connection: close\r\n\r\nhello",
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


def gigabyte(connection):
    connection.sendall(HEAD + b"Content-Length: 1073741824\r\n\r\n")
    for _ in range(1024):
        connection.sendall(b"x" * 1048576)


def drip(connection):
    connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.01)


def drip_head(connection):
    for byte in HEAD + b"X: " + b"x" * 60000:
        connection.sendall(bytes([byte]))
        time.sleep(0.01)


ENDLESS = {"/endless": endless, "/endless-head": endless_head, "/gigabyte": gigabyte, "/drip": drip, "/drip-head": drip_head}

# What is sent before the connection is reset.
RESETS = {
    "/reset-silent": b"",
    "/reset-status": b"HTTP/1.1 20",
    "/reset-head": HEAD + b"Content-Length: 10\r\nX: ",
    "/reset-body": HEAD + b"Content-Length: 10\r\n\r\nhello",
    "/reset-chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "/reset-open": HEAD + b"Connection: close\r\n\r\nhello",
}


def reset(connection):
    """Ends it with RST in place of FIN (socket(7), SO_LINGER)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def with_status(connection, path):
    """/status/CODE, with what is after a "?" as header lines, "&" between them."""
    code, _, lines = path[len("/status/"):].partition("?")
    head = "HTTP/1.1 %s Odd\r\nConnection: close\r\n" % code
    head += "".join(line.replace("=", ": ", 1) + "\r\n" for line in lines.split("&") if line)
    body = b"" if code in ("204", "304") else b'{"code":%s,"message":"words of theirs"}' % code.encode()
    connection.sendall(head.encode() + (b"Content-Length: %d\r\n\r\n" % len(body) if body else b"\r\n") + body)


deaths = {}
lock = threading.Lock()
counts = {}


def read_whole_head(connection):
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(65536)
        if not piece:
            raise OSError
        head += piece
    return head


def read_head(connection):
    head = read_whole_head(connection)
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
        elif path in ENDLESS:
            ENDLESS[path](connection)
        elif path == "/silent":
            time.sleep(20)
        elif path == "/reset":
            connection.sendall(HEAD + b"Content-Length: 10\r\n\r\nhello")
            time.sleep(0.02)
        elif path in RESETS:
            connection.sendall(RESETS[path])
            time.sleep(0.05 if RESETS[path] else 0)
            reset(connection)
        elif path.startswith("/status/"):
            with_status(connection, path)
        elif path.startswith("/late/"):
            # /late/N/NAME is there from the Nth request on.
            _, _, times, name = path.split("/")
            with lock:
                counts[name] = counts.get(name, 0) + 1
            with_status(connection, "/status/200" if counts[name] >= int(times) else "/status/503")
        elif path.startswith("/count/"):
            body = b"%d" % counts.get(path[7:], 0)
            connection.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        else:
            connection.sendall(ANSWERS[path])
        if isinstance(connection, ssl.SSLSocket) and not path.endswith("/no-goodbye"):
            connection.unwrap()
    except (OSError, KeyError, ValueError):
        pass
    finally:
        connection.close()


def over_tls(context):
    def handle(connection):
        try:
            connection = context.wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()
            return
        serve(connection)
    return handle


def mute(connection):
    time.sleep(20)
    connection.close()


def half_shake(connection):
    connection.recv(65536)
    reset(connection)


def speaks_first(connection):
    connection.sendall(b"220 mail.test ESMTP\r\n")
    time.sleep(0.2)
    connection.close()


# ---- the proxy ----

proxied = []
PROXY_ANSWERS = {
    "login.test": b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n",
    "refused.test": b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
    "gone.test": b"HTTP/1.1 502 No\r\nContent-Length: 4\r\n\r\nwhat",
    "garbage.test": b"\x00\x01\x02 this is not HTTP\r\n\r\n",
    "empty.test": b"",
    "broken.test": b"HTTP/1.1 200 Yes\r\n\r\n",
    "plain.test": b"HTTP/1.1 200 Yes\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
}


def relay(one, other):
    def pump(source, target):
        try:
            while True:
                piece = source.recv(65536)
                if not piece:
                    break
                target.sendall(piece)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
    thread = threading.Thread(target=pump, args=(other, one), daemon=True)
    thread.start()
    pump(one, other)
    thread.join()
    other.close()


def proxy(ports):
    def handle(connection):
        try:
            head = read_whole_head(connection).decode("latin-1")
            method, target = head.split(" ")[:2]
            if target == "/log":
                body = json.dumps(proxied).encode()
                proxied.clear()
                connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                return
            proxied.append(head)
            host = re.match(r"(?:http://)?([^:/]*)", target).group(1)
            if host == "mute.test":
                time.sleep(20)
            elif host == "reset.test":
                reset(connection)
            elif host in PROXY_ANSWERS:
                connection.sendall(PROXY_ANSWERS[host])
            elif method == "CONNECT":
                other = socket.create_connection(("127.0.0.1", ports["good"]))
                connection.sendall(b"HTTP/1.1 200 Yes\r\n\r\n")
                relay(connection, other)
            else:
                connection.sendall(HEAD + b"Content-Length: 7\r\n\r\nproxied")
        except OSError:
            pass
        finally:
            connection.close()
    return handle


# ---- sockets ----

def accept_all(listener, handle):
    while True:
        threading.Thread(target=handle, args=(listener.accept()[0],), daemon=True).start()


def open_port(handle):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threading.Thread(target=accept_all, args=(listener, handle), daemon=True).start()
    return listener.getsockname()[1]


def context_for(folder, name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".key"))
    return context


def old_context(folder):
    context = context_for(folder, "good")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def open_ports(folder):
    ports = {"tcp": open_port(serve), "mute": open_port(mute), "accept-reset": open_port(reset),
             "half-shake": open_port(half_shake), "mail": open_port(speaks_first)}
    for file in os.listdir(folder):
        name, extension = os.path.splitext(file)
        if extension == ".pem" and name != "ca":
            ports[name] = open_port(over_tls(context_for(folder, name)))
    ports["old"] = open_port(over_tls(old_context(folder)))
    ports["proxy"] = open_port(proxy(ports))
    with socket.create_server(("127.0.0.1", 0)) as unused:
        ports["nobody"] = unused.getsockname()[1]
    return ports


if len(sys.argv) > 2:
    with open(sys.argv[1] + ".ports", "w") as file:
        json.dump(open_ports(sys.argv[2]), file)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + ".new")
listener.listen(64)
os.rename(sys.argv[1] + ".new", sys.argv[1])
accept_all(listener, serve)

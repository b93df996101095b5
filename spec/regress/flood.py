"""An E2B of one sandbox whose commands never rest: frames of nothing, as fast as they are taken. Prints its port."""
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DETAIL = {"sandboxID": "flood", "templateID": "base", "state": "running", "envdVersion": "0.6.5"}


def frame(message):
    body = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(body)) + body


FLOOD = frame({"event": {"keepalive": {}}}) * 3000


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value):
        body = json.dumps(value).encode() if value is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def flood(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        piece = frame({"event": {"start": {"pid": 7}}})
        while True:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            piece = FLOOD

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/sandboxes":
            self.answer(201, DETAIL)
        elif self.path == "/process.Process/Start":
            self.flood()
        else:
            self.answer(204, None)

    def do_GET(self):
        self.answer(200, DETAIL)

    def do_DELETE(self):
        self.answer(204, None)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
threading.Timer(60, server.shutdown).start()
server.serve_forever()

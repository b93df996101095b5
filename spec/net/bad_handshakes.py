"""bad_handshakes.py PORT COUNT - sends what is no TLS handshake: plain HTTP, torn hellos, noise, alerts, silence.

Some connections are closed at once, some left open until the server closes them; prints how many it closed in time."""
import random
import socket
import sys

WAIT_S = 6
port, count = int(sys.argv[1]), int(sys.argv[2])
noise = random.Random(7)
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


def shapes():
    yield b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    yield HELLO + noise.randbytes(32)
    yield noise.randbytes(200)
    yield b"\x15\x03\x03\x00\x02\x02\x28"
    yield b""
    yield HELLO[:2] + noise.randbytes(3) + noise.randbytes(600)
    yield b"\x16\x03\x01\xff\xff" + bytes(20000)


held = []
while len(held) < count:
    for text in shapes():
        client = socket.create_connection(("127.0.0.1", port))
        client.settimeout(WAIT_S)
        try:
            client.sendall(text)
        except OSError:
            pass
        held.append(client)
for client in held[::3]:
    client.close()
closed = 0
for client in held:
    if client.fileno() < 0:
        closed += 1
        continue
    try:
        while client.recv(4096):
            pass
        closed += 1
    except socket.timeout:
        pass
    except OSError:
        closed += 1
print("closed", closed, "of", len(held))

"""One end of a connection: `peer.py listen|ask unix NAME` over an abstract socket, `peer.py listen|ask HOST PORT`.

A listener says `ready`, and answers each with `inside`; who asks prints the answer, or `refused` and why.
"""

import socket
import sys

mode, host, port = sys.argv[1:]
peer = socket.socket(socket.AF_UNIX if host == "unix" else socket.AF_INET)
address = f"\0{port}" if host == "unix" else (host, int(port))
if mode == "listen":
    peer.bind(address)
    peer.listen()
    sys.stdout.write("ready")
    sys.stdout.flush()
    while True:
        other, _ = peer.accept()
        other.recv(99)
        other.sendall(b"inside")
        other.close()
peer.settimeout(5)
try:
    peer.connect(address)
    peer.sendall(b"ping")
    sys.stdout.write(peer.recv(99).decode())
except OSError as error:
    sys.stdout.write(f"refused {error}")

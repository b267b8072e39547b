"""Hold so many bytes in buffers of TCP or UDP sockets on the loopback, or as many as there are; print it and stay."""

import contextlib
import socket
import sys
import time

kind, wanted = sys.argv[1], int(sys.argv[2])
held = 0
kept: list[socket.socket] = []
block = b"x" * (1 << 20)
listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
while held < wanted and len(kept) < 1500:
    if kind == "tcp":
        ends = [socket.create_connection(listener.getsockname()), listener.accept()[0]]
        for end in ends:
            end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    held += end.send(block)
        kept += ends
    else:
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(8):
                held += sender.sendto(block[:60_000], receiver.getsockname())
        kept.append(receiver)
print("held", held, flush=True)
time.sleep(1000)

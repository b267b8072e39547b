"""Hold so many bytes of memory in files in memory, pipes or sockets, where no process has mapped them."""

import fcntl
import os
import socket
import sys

kind, wanted = sys.argv[1], int(sys.argv[2])
block = b"x" * (1 << 16)
held = 0
kept: list[int | socket.socket] = []
while held < wanted:
    try:
        if kind == "memfd":
            kept = kept or [os.memfd_create("x")]
            held += os.write(int(kept[0]), block)  # type: ignore[arg-type]
        elif kind == "pipes":
            read, write = os.pipe()
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 16)
            os.set_blocking(write, False)
            kept += [read, write]
            held += os.write(write, block)
        else:
            one, two = socket.socketpair()
            one.setblocking(False)
            kept += [one, two]
            held += one.send(block)
    except OSError as error:
        print("refused", error)
        break

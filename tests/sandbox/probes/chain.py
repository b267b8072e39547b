"""Fork for ever in chains that wake themselves: each link has a timer that ends its own stop, then forks and dies."""

import ctypes
import os
import signal

SIGEV_SIGNAL, CLOCK_MONOTONIC = 0, 1
CHAINS = 60
libc = ctypes.CDLL(None, use_errno=True)


class Event(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("pad", ctypes.c_char * 48),
    ]


class Times(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


def wake_often() -> None:
    timer = ctypes.c_void_p()
    event = Event(None, signal.SIGCONT, SIGEV_SIGNAL)
    libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
    libc.timer_settime(timer, 0, ctypes.byref(Times(0, 300_000, 0, 300_000)), None)


def chain() -> None:
    while True:
        wake_often()
        if os.fork():
            os._exit(0)
        os.setsid()


for _ in range(CHAINS):
    if os.fork() == 0:
        chain()

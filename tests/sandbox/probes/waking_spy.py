"""The same as spy.py, of a process that ends its own stop by a timer."""

import ctypes
import os
import signal


class Event(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("pad", ctypes.c_char * 48),
    ]


class Times(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


libc = ctypes.CDLL(None, use_errno=True)
timer = ctypes.c_void_p()
libc.timer_create(1, ctypes.byref(Event(None, signal.SIGCONT, 0)), ctypes.byref(timer))
libc.timer_settime(timer, 0, ctypes.byref(Times(0, 300_000, 0, 300_000)), None)
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

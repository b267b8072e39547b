"""Take inotify instances until there are no more; print the error's number and stay."""

import ctypes
import time

libc = ctypes.CDLL(None, use_errno=True)
while libc.inotify_init1(0) >= 0:
    pass
print(ctypes.get_errno(), flush=True)
time.sleep(1000)

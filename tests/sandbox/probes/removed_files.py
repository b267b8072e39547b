"""Fill the disk with removed files, 8 MiB at a time, that are held where no process's own table shows them."""

import ctypes
import os
import sys
import threading
import time

PIECE, COUNT = 8 << 20, 40
PROT_READ, MAP_SHARED, CLONE_FILES, SYS_EXIT = 1, 1, 0x400, {"x86_64": 60, "aarch64": 93}[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def removed() -> int:
    path = "/tmp/removed"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, b"x" * PIECE)
    os.unlink(path)
    return fd


def fill(mapped: bool) -> None:
    for _ in range(COUNT):
        fd = removed()
        if mapped:
            assert libc.mmap(None, 4096, PROT_READ, MAP_SHARED, fd, 0) != ctypes.c_void_p(-1).value
            os.close(fd)
        time.sleep(0.1)
    time.sleep(1000)


def fill_in_own_table() -> None:
    assert libc.unshare(CLONE_FILES) == 0
    fill(mapped=False)


kind = sys.argv[1]
if kind == "mapped":
    fill(mapped=True)
elif kind == "thread":
    thread = threading.Thread(target=fill_in_own_table)
    thread.start()
    thread.join()
else:  # the main thread ends, and its process's own entries show nothing any more
    threading.Thread(target=fill, args=(False,)).start()
    libc.syscall(SYS_EXIT, 0)

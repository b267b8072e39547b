"""Try one thing that the sandbox refuses; print "refused", or what became of it."""

import ctypes
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
X86 = sys.maxsize > 2**32 and "x86" in __import__("platform").machine()
CALLS = {"io_uring": (425, 1, ctypes.create_string_buffer(256)), "userfaultfd": (323 if X86 else 282, 1)}
FAMILIES = {"vsock": socket.AF_VSOCK, "alg": socket.AF_ALG, "packet": socket.AF_PACKET}
name = sys.argv[1]
if name in CALLS:
    print("refused" if libc.syscall(*CALLS[name]) == -1 and ctypes.get_errno() == 38 else "worked")
else:
    try:
        socket.socket(FAMILIES[name], socket.SOCK_STREAM)
        print("worked")
    except OSError as error:
        print("refused" if error.errno == 97 else error)

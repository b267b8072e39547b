"""A static program of a few system calls for x86-64, smaller than any other that a container holds."""

import struct

_BASE = 0x400000
_REGISTERS = (b"\x48\xb8", b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8")
"""`mov` of a number into rax, which says what is called, rdi, rsi, rdx, r10, r8."""
_CALL = b"\x0f\x05"
_EXIT = b"\xf7\xd8\x89\xc7\xb8\x3c\0\0\0" + _CALL
"""Ends with the error number of the last call as its exit code."""
TEXT = _BASE
"""Where some text stands in its memory."""

FALLOCATE, MEMFD_CREATE, PAUSE, PTRACE = 285, 319, 34, 101
SEIZE, EXIT_KILL = 0x4206, 0x100000


def program(*calls: tuple[int, ...]) -> bytes:
    """The program that makes these calls, each its number and its arguments, and ends."""
    code = b"".join(
        b"".join(register + struct.pack("<Q", value) for register, value in zip(_REGISTERS, call)) + _CALL  # noqa: B905
        for call in calls
    )
    size = 120 + len(code) + len(_EXIT)
    header = b"\x7fELF\2\1\1".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, _BASE + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    header += struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return header + code + _EXIT

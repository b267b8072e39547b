"""The system call filter of the sandbox.

Invariant: process 1 has the agent's uid, and some calls ask the kernel for nothing more than an equal uid. The filter
refuses those when they name process 1 (an agent could starve it of descriptors, and so of a verdict), and refuses the
key rings, which no namespace separates. It refuses to enter another process, too: what ran before the agent is spared
at its end, and must not carry the agent's code into the scoring. Tracing one's own children from their start works.
Sockets are of families that a network namespace separates; io_uring, userfaultfd, bpf and perf_event_open, which few
programs need and many attacks on kernels do, are not there; nor is io_setup, whose contexts are counted for the whole
machine, nor fallocate, with which one call takes the disk before anybody has looked.

Program format: classic BPF over `struct seccomp_data`, as in seccomp(2) and <linux/bpf_common.h>.
"""

import platform
import struct
from dataclasses import dataclass

_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_EOPNOTSUPP, _EAFNOSUPPORT = 0x0005005F, 0x00050061
_NUMBER_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16
_X32_BIT = 0x40000000
_PROCESS_ONE = 1
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_PTRACE_ATTACH, _PTRACE_SEIZE = 16, 0x4206
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""


@dataclass(frozen=True)
class _Machine:
    """The audit architecture and the numbers of the calls that matter; little-endian, 64 bit."""

    arch: int
    keys: tuple[int, ...]  # add_key, request_key, keyctl
    on_pid: tuple[int, ...]  # their first argument: prlimit64, sched_setaffinity, -scheduler, -param, -attr
    setpriority: int
    ioprio_set: int
    ptrace: int
    into_others: tuple[int, ...]  # process_vm_writev, pidfd_getfd
    absent: tuple[int, ...]  # io_uring_setup, -enter, -register, userfaultfd, io_setup, bpf, perf_event_open
    fallocate: int
    sockets: tuple[int, ...]  # socket, socketpair


_MACHINES = {
    "x86_64": _Machine(
        *(0xC000003E, (248, 249, 250), (302, 203, 144, 142, 314), 141, 251, 101, (311, 438)),
        *((425, 426, 427, 323, 206, 321, 298), 285, (41, 53)),
    ),
    "aarch64": _Machine(
        *(0xC00000B7, (217, 218, 219), (261, 122, 119, 118, 274), 140, 30, 117, (271, 438)),
        *((425, 426, 427, 282, 0, 280, 241), 47, (198, 199)),
    ),
}


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _argument(number: int) -> bytes:
    return _instruction(_LOAD_WORD, _ARGS_OFFSET + 8 * number)


def _deny(code: int, value: int, action: int, *, unless: bool = False) -> bytes:
    """Return `action` if the loaded word compares true with `value` (`unless`: if it does not)."""
    return _instruction(code, value, int(unless), int(not unless)) + _instruction(_RETURN, action)


def _call(number: int, *checks: bytes) -> bytes:
    """Decide one system call: the checks in order, then allow."""
    body = b"".join(checks) + _instruction(_RETURN, _ALLOW)
    return _instruction(_JUMP_EQUAL, number, 0, len(body) // 8) + body


def _only(values: tuple[int, ...], action: int) -> list[bytes]:
    """Allow if the loaded word is one of `values`, else return `action`."""
    allowed = [_instruction(_JUMP_EQUAL, value, 0, 1) + _instruction(_RETURN, _ALLOW) for value in values]
    return [*allowed, _instruction(_RETURN, action)]


def seccomp_program(machine: str = platform.machine()) -> bytes | None:
    """Return the filter for this kind of machine, None where its call numbers are not known."""
    known = _MACHINES.get(machine)
    if known is None:
        return None
    not_process_one = _deny(_JUMP_EQUAL, _PROCESS_ONE, _EPERM)
    program = [
        _instruction(_LOAD_WORD, _ARCH_OFFSET),
        _deny(_JUMP_EQUAL, known.arch, _KILL, unless=True),  # 32-bit calls would pass all that follows
        _instruction(_LOAD_WORD, _NUMBER_OFFSET),
        _deny(_JUMP_AT_LEAST, _X32_BIT, _ENOSYS),
        *(_deny(_JUMP_EQUAL, number, _EPERM) for number in (*known.keys, *known.into_others)),
        *(_deny(_JUMP_EQUAL, number, _ENOSYS) for number in known.absent),
        _deny(_JUMP_EQUAL, known.fallocate, _EOPNOTSUPP),
        *(_call(number, _argument(0), *_only(_FAMILIES, _EAFNOSUPPORT)) for number in known.sockets),
        _call(
            known.ptrace,
            _argument(0),
            _deny(_JUMP_EQUAL, _PTRACE_ATTACH, _EPERM),
            _deny(_JUMP_EQUAL, _PTRACE_SEIZE, _EPERM),
        ),
        *(_call(number, _argument(0), not_process_one) for number in known.on_pid),
    ]
    for number, process in ((known.setpriority, _PRIO_PROCESS), (known.ioprio_set, _IOPRIO_WHO_PROCESS)):
        only_processes = _deny(_JUMP_EQUAL, process, _EPERM, unless=True)
        program.append(_call(number, _argument(0), only_processes, _argument(1), not_process_one))
    return b"".join([*program, _instruction(_RETURN, _ALLOW)])

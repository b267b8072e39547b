"""Try to stop, kill, trace, read or starve process 1; print what worked."""

import ctypes
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (PTRACE_ATTACH, PTRACE_SEIZE):
        if libc.ptrace(request, 1, 0, 0) == 0:
            print(f"ptrace {request:#x} worked")
    for name in ("mem", "environ", "maps", "auxv", "stack", "syscall", "io"):
        with suppress(OSError), open(f"/proc/1/{name}", "rb") as file:
            if file.read(1):
                print(f"/proc/1/{name} is readable")
    for number in range(64):
        with suppress(OSError):
            os.close(os.open(f"/proc/1/fd/{number}", os.O_RDONLY | os.O_NONBLOCK))
            print(f"descriptor {number} of process 1 was opened")
    with suppress(OSError):
        print("/proc/1/map_files lists", os.listdir("/proc/1/map_files"))
    for name in ("root", "cwd", "exe"):
        with suppress(OSError):
            print(f"/proc/1/{name} is", os.readlink(f"/proc/1/{name}"))
    for name in ("oom_score_adj", "comm", "clear_refs", "coredump_filter"):
        with suppress(OSError):
            Path(f"/proc/1/{name}").write_text("1000")
            print(f"/proc/1/{name} is writable")
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
        with suppress(PermissionError):
            resource.prlimit(1, limit, (1, 1))
            print(f"limit {limit} of process 1 was changed")
    with suppress(PermissionError):
        os.sched_setaffinity(1, {0})
        print("affinity of process 1 was changed")
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 1, 19)
        print("priority of process 1 was changed")
    for number in sorted(set(signal.valid_signals())):
        os.kill(1, number)
    os.kill(1, signal.SIGKILL)


if __name__ == "__main__":
    main()

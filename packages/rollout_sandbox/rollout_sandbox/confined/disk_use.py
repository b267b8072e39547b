"""What the files of a sandbox take: `python disk_use.py DIRECTORY PID` prints bytes, with 4 KiB for each file.

A program of its own, because an agent decides how much there is to look at. Removed files count while a process below
PID has them open, in a table of descriptors of any thread, or mapped; those that are on their way between processes
are not seen. What agents make unreadable counts only for root. Standard library only.
"""

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterator

MIN_FILE_BYTES = 4096
_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_FILES = 2
_BLOCK = 512


def main(directory: str, starter: int) -> int:
    os.nice(10)
    size, files = (_measured(directory, option) for option in ("-B1", "--inodes"))
    device = os.stat(directory).st_dev
    removed: dict[int, int] = {}
    for pid in _descendants(starter):
        for found in (*_open(pid), *_mapped(pid)):
            if found.st_dev == device and found.st_nlink == 0:
                removed[found.st_ino] = found.st_blocks * _BLOCK
    return size + MIN_FILE_BYTES * files + sum(removed.values())


def _measured(directory: str, option: str) -> int:
    done = subprocess.run(["du", "-sx", option, "--", directory], capture_output=True, check=False)
    return int(done.stdout.split(maxsplit=1)[0]) if done.stdout else 0


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:  # it ended, or hides it: the sandbox's process 1
        return []


def _stat(path: str) -> Iterator[os.stat_result]:
    try:
        yield os.stat(path)
    except OSError:
        return


def _open(pid: int) -> Iterator[os.stat_result]:
    """Yield what a process has open; its threads may have tables of their own."""
    for number, thread in enumerate(sorted(_listed(f"/proc/{pid}/task"), key=int)):
        if number and _KCMP and ctypes.CDLL(None).syscall(_KCMP, pid, int(thread), _KCMP_FILES, 0, 0) == 0:
            continue  # the same table
        table = f"/proc/{pid}/task/{thread}/fd"
        for name in _listed(table):
            yield from _stat(f"{table}/{name}")


def _mapped(pid: int) -> Iterator[os.stat_result]:
    """The removed files that a process maps; a main thread that has ended shows none of them."""
    for thread in _listed(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/maps", "rb") as file:
                lines = file.readlines()
        except OSError:
            continue
        for line in lines:
            if line.endswith(b" (deleted)\n"):
                low, high = (part.lstrip(b"0") or b"0" for part in line.split(maxsplit=1)[0].split(b"-"))
                yield from _stat(f"/proc/{thread}/map_files/{low.decode()}-{high.decode()}")
        if lines:
            return


def _descendants(starter: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in _listed("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    stat = file.read()
            except OSError:
                continue
            children.setdefault(int(stat[stat.rindex(b")") + 2 :].split()[1]), []).append(int(name))
    found: set[int] = set()
    waiting = [starter]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


if __name__ == "__main__":
    try:
        sys.stdout.write(str(main(sys.argv[1], int(sys.argv[2]))))
    except FileNotFoundError:  # the sandbox was removed meanwhile
        sys.exit(1)

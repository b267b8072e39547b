"""What runs in a sandbox, seen from a command in it; and whether a process of this machine runs."""

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process of this machine runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """The parent of a process of this machine; 0 when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_below(pid: int, ancestor: int) -> bool:
    """Whether a process of this machine is a descendant of another."""
    while pid > 1:
        pid = parent_of(pid)
        if pid == ancestor:
            return True
    return False

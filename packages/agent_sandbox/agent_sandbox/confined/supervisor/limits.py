"""What every command of the sandbox is bound to, and all that it starts.

Invariant: a limit is in force before the command's first instruction, and no process inside can raise it: hard limits
of the kernel's, and control groups whose entry only process 1 holds. Process 1 itself is under none of them, so that
no command can take from it what it needs to answer its host.
"""

from __future__ import annotations

import os
import resource

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from collections.abc import Sequence

_NO_CORE_BYTES = 1  # 0 would still start the host's core dump handler


class Limits:
    """The limits; None: no limit.

    Args:
        processes: of the sandbox's user, threads included.
        open_files: of each process.
        file_bytes: size of each file.
        groups: descriptors of the entry files of the commands' control groups.
        groups_alone: the same for a command that runs while the others are held.
        memory_bytes: resident memory of all processes, which process 1 watches where no control group does.
    """

    __slots__ = ("_groups", "_groups_alone", "_hard", "memory_bytes")

    def __init__(
        self,
        processes: int | None = None,
        open_files: int | None = None,
        file_bytes: int | None = None,
        groups: Sequence[int] = (),
        groups_alone: Sequence[int] = (),
        memory_bytes: int | None = None,
    ) -> None:
        wanted = {
            resource.RLIMIT_NPROC: processes,
            resource.RLIMIT_NOFILE: open_files,
            resource.RLIMIT_FSIZE: file_bytes,
            resource.RLIMIT_CORE: _NO_CORE_BYTES,
        }
        self._hard = {kind: self._lowered(kind, value) for kind, value in wanted.items() if value is not None}
        self._groups = groups
        self._groups_alone = groups_alone
        self.memory_bytes = memory_bytes
        for fd in (*groups, *groups_alone):
            os.set_inheritable(fd, False)
        # The kernel lets a process send descriptors while fewer than its own limit are on the way, of its user's.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    @staticmethod
    def _lowered(kind: int, value: int) -> int:
        most = resource.getrlimit(kind)[1]
        return value if most == resource.RLIM_INFINITY else min(value, most)

    def impose(self, alone: bool) -> None:
        """Put the calling process, a fork of process 1, under the limits; an `OSError` if a control group is gone."""
        for fd in self._groups_alone if alone else self._groups:
            os.write(fd, b"0")  # the writer itself
        for kind, value in self._hard.items():
            resource.setrlimit(kind, (value, value))

"""What one sandbox may use: its host user id and its control groups, had for as long as the sandbox lives.

Invariant: what was taken is given back by `release`, whatever of it there was.
"""

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence
from typing import Any

from verifiers.v1.errors import SandboxError

from agent_sandbox.confined.bubblewrap import user_pool
from agent_sandbox.confined.config import Bind, LocalSandboxConfig
from agent_sandbox.confined.control_groups import ControlGroup, host_hierarchies, sweep_groups
from agent_sandbox.confined.users import SandboxUser

_COUNTED_BY_NAMESPACE = (5, 14)
"""The Linux release since which a limit of processes counts those of a user namespace, not all of the user's."""


class Allowance:
    """Taken blocking, before the sandbox starts.

    Args:
        user: one that is lent by another sandbox, whose files this one shows.
    """

    def __init__(self, options: LocalSandboxConfig, user: SandboxUser | None = None) -> None:
        self._options = options
        self._pool = user_pool(options.first_user) if options.own_user and user is None else None
        self.user = user if self._pool is None else self._taken()
        self.group: ControlGroup | None = None

    def _taken(self) -> SandboxUser:
        assert self._pool is not None
        try:
            return self._pool.take()
        except OSError as error:
            raise SandboxError(f"no user id for the sandbox: {error}") from error

    def make_group(self, name: str) -> None:
        """Make the control groups that can be had, when those of dead evaluations are removed."""
        if self._options.max_memory is None:
            return
        try:
            found = host_hierarchies()
            sweep_groups(found)
            self.group = ControlGroup(found, name, self._options.max_memory)
        except (OSError, ValueError) as error:
            raise SandboxError(f"no control group for the sandbox: {error}; see --env.sandbox.max-memory") from error

    @contextlib.contextmanager
    def settings(self) -> Iterator[dict[str, Any]]:
        """Give the arguments of the supervisor's `Limits`; the descriptors in them are open within this context."""
        options, group = self._options, self.group
        with contextlib.ExitStack() as stack:
            entries: tuple[list[int], list[int]] = stack.enter_context(group.entries()) if group else ([], [])
            watched = options.max_memory if group is None or not group.limits_memory else None
            yield {
                "processes": self._processes(),
                "open_files": self._open_files(),
                "file_bytes": _number(options.max_disk),
                "groups": entries[0],
                "groups_alone": entries[1],
                "memory_bytes": _number(watched),
            }

    def _processes(self) -> int | None:
        release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
        return self._options.max_processes if self.user is not None or release >= _COUNTED_BY_NAMESPACE else None

    def _open_files(self) -> int | None:
        """Less than what this process or the sandbox's process 1 has: the kernel counts descriptors in flight by user,
        and a sender's own limit says how many are too many for it."""
        wanted = self._options.max_open_files
        if wanted is None:
            return None
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return min(wanted, (hard if self.user is not None else soft) // 2)

    def require_readable(self, binds: Sequence[Bind]) -> None:
        """Refuse, by a `SandboxError`, a bind that the sandbox's user could not read."""
        for bind in binds if self.user is not None else ():
            try:
                found = bind.source.stat()
            except OSError:
                continue  # bubblewrap says it better
            if self.user is not None and found.st_uid == self.user.uid:
                continue  # of the sandbox that lent its user
            needed = 0o005 if bind.source.is_dir() else 0o004
            if found.st_mode & needed != needed:
                raise SandboxError(
                    f"{bind.source} is closed to the user id of the sandbox: chmod -R go+rX it, or share the "
                    "evaluation's id (--env.sandbox.own-user false)"
                )

    def release(self) -> None:
        """Give back what was taken, once everything inside has ended; idempotent."""
        if self.group is not None:
            self.group.remove()
            self.group = None
        if self._pool is not None and self.user is not None:
            self._pool.give_back(self.user)
            self.user = None


def _number(value: int | None) -> int | None:
    """A plain number: a ByteSize prints as text that is not a literal."""
    return None if value is None else int(value)

"""What one sandbox may use: its host user id and its control groups, had for as long as the sandbox lives.

Invariant: what was taken is given back by `release`, whatever of it there was.
"""

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence
from typing import Any

from verifiers.v1.errors import SandboxError

from rollout_sandbox.confined.bubblewrap import user_pool
from rollout_sandbox.confined.config import Bind, LocalSandboxConfig
from rollout_sandbox.confined.control_groups import ControlGroup, host_hierarchies, sweep_groups
from rollout_sandbox.confined.users import SandboxUser, UserPool

_COUNTED_BY_NAMESPACE = (5, 14)
"""The Linux release since which a limit of processes counts those of a user namespace, not all of the user's."""

_NO_ENTRIES: tuple[list[int], list[int]] = [], []


class Allowance:
    """Taken blocking, before the sandbox starts.

    Args:
        lent: the user of another sandbox, whose files this one shows.
    """

    def __init__(self, options: LocalSandboxConfig, lent: SandboxUser | None) -> None:
        self._options = options
        self._pool: UserPool | None = None
        self.user = lent
        """The host user id of its own that the sandbox has; None when it shares the evaluation's."""
        self.group: ControlGroup | None = None
        """None where there are none."""

    def take_user(self) -> None:
        """Take a user id, unless one is lent or it shares the evaluation's."""
        if self._options.own_user and self.user is None and (pool := user_pool(self._options.first_user)) is not None:
            try:
                self.user = pool.take()
            except OSError as error:
                raise SandboxError(f"no user id for the sandbox: {error}") from error
            self._pool = pool

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
        with self.group.entries() if self.group else contextlib.nullcontext(_NO_ENTRIES) as (groups, groups_alone):
            yield {
                "processes": self._processes(),
                "open_files": self._open_files(),
                "file_bytes": self._options.max_disk,
                "groups": groups,
                "groups_alone": groups_alone,
                "memory_bytes": None if self.group and self.group.limits_memory else self._options.max_memory,
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
        if self.user is None:
            return
        for bind in binds:
            try:
                found = bind.source.stat()
            except OSError:
                continue  # bubblewrap says it better
            if found.st_uid == self.user.uid:
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

"""Ends what the agent started, by identity, before anything is scored.

After `end()` returned, no process lives in the sandbox that started after `mark()`, other than children of
processes that are spared. The confined local sandbox does it natively (its process 1 is ours) and spares the children
of whatever ran at the mark. Elsewhere two shell scripts do, which an agent that is root in its container could have
undermined by replacing `sh`; they spare the children of marked tool servers only, because there an agent can be a
descendant of a process that ran before it. A service that `setup` started lives on, but for workers that it forks
later.
"""

import os
from dataclasses import dataclass, field

from opencode_rubrics import run_checked
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.programs import program_argv, program_text
from verifiers.v1.errors import HarnessError, SandboxError
from verifiers.v1.runtimes import Runtime


def agents_view(runtime: Runtime) -> Runtime:
    """The view of a runtime through which the agent's programs are to be started."""
    return abilities_of(runtime).agents_view() or runtime


@dataclass
class ProcessFence:
    """The line between what ran before the agent and what the agent started."""

    runtime: Runtime
    _mark: str | None = field(default=None, repr=False)
    """What `mark.sh` printed; empty where the runtime remembers it; None before the line was drawn."""
    _ended: bool = field(default=False, repr=False)
    _failure: SandboxError | None = field(default=None, repr=False)

    @property
    def mark_script(self) -> str:
        """Return what a harness's own preparing script runs at its end, so that its output holds the mark; empty where
        the runtime remembers it."""
        return "" if abilities_of(self.runtime).can_end_agent else program_text("mark.sh")

    async def mark(self, printed: str | None = None) -> None:
        """Remember every process that is running now, as `mark_script` printed them for a harness that ran it; None
        runs it here.

        Raises:
            SandboxError: when the sandbox cannot be asked, or shares the processes of this machine.
        """
        sandbox = abilities_of(self.runtime)
        if sandbox.can_end_agent:
            await sandbox.mark_agent_start()
            self._mark = ""
            return
        if printed is None:
            failure = "listing the sandbox's processes failed"
            printed = (await run_checked(self.runtime, ["sh", "-c", self.mark_script], failure)).stdout
        head, _, lines = printed.partition("\n")
        if not head.startswith("namespace=pid:") or not lines.strip():
            raise SandboxError(f"cannot list the sandbox's processes: {printed.strip()[-500:]}")
        # `end.sh` kills by exclusion, so it must never run among the processes of this machine.
        if self.runtime.is_local and head.removeprefix("namespace=") == os.readlink("/proc/self/ns/pid"):
            raise SandboxError(
                f"the {self.runtime.type} sandbox shares this machine's processes, so the agent's could not be told "
                "apart and ended: use the confined local sandbox, docker, podman or a remote runtime"
            )
        self._mark = lines.strip()

    async def end_run(self) -> None:
        """Kill everything that started since `mark()`, before the agent's program runs again.

        Raises:
            HarnessError: some process survived, and programs inside of an agent that is root can have done that.
            SandboxError: some process survived, or the sandbox is gone.
        """
        if self._mark is None:
            return
        try:
            await self._end(self._mark)
        except SandboxError as error:
            if not self._undermined(error):
                raise
            raise HarnessError(str(error)) from error

    async def end(self) -> None:
        """Kill everything that started since `mark()`, if that was reached; again, it answers what it found first."""
        if self._mark is None or self._ended:
            return
        if self._failure is None:
            try:
                await self._end(self._mark)
            except SandboxError as error:
                self._failure = error
        if self._failure is not None:
            raise self._failure
        self._ended = True

    @property
    def spoilt(self) -> bool:
        """Whether `end` failed, and programs inside of an agent that is root can have done that."""
        return self._failure is not None and self._undermined(self._failure)

    def _undermined(self, failure: SandboxError) -> bool:
        sandbox = abilities_of(self.runtime)
        return not sandbox.can_end_agent and sandbox.agent_can_cause(failure)

    async def _end(self, mark: str) -> None:
        sandbox = abilities_of(self.runtime)
        if sandbox.can_end_agent:
            await sandbox.end_agent_processes()
            return
        # As the default user, usually root: the agent's own user could not end what other users run.
        box = self.runtime.with_user(None) if self.runtime.user is not None else self.runtime
        await run_checked(box, program_argv("end.sh", mark), "the agent's processes could not be ended")

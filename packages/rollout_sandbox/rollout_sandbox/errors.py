"""The errors of this distribution, beside those of verifiers from which they come.

    TaskError (verifiers)
    ├── SandboxFileError
    └── ScoringError
    SandboxError (verifiers)
    ├── SandboxAccessError
    ├── SandboxQuotaError
    ├── SandboxImageError
    ├── SandboxNotReadyError
    ├── SandboxMemoryError
    ├── SandboxDiskError
    ├── SandboxEndedError
    └── SandboxGatewayError
    ScoringTimeout
    NotKept
    └── ChildrenRun

Those of Prime's sandboxes are told apart by `rollout_sandbox.prime.sdk_errors`.
"""

from enum import IntEnum

from verifiers.v1.errors import SandboxError, TaskError

from rollout_sandbox.outcomes import Outcome


class SandboxFileError(TaskError):
    """A file of the sandbox cannot be read as asked; an agent can bring that about, so `--env.retries` leaves it alone
    unless a rule says otherwise."""

    outcome = Outcome(
        "a hook read a file that is missing, a link or too large",
        "catch it and look at `.state`; the agent may have done that",
        again=False,
    )

    def __init__(self, message: str, state: IntEnum) -> None:
        super().__init__(message)
        self.state = state
        """The `FileState` of what stands there instead (`rollout_sandbox.toolbox.bounded_file`)."""

    def __reduce__(self) -> tuple[type["SandboxFileError"], tuple[str, IntEnum]]:
        return type(self), (str(self), self.state)


class SandboxAccessError(SandboxError):
    """The platform does not let the key in, or not to this (401, 403): a person has to mend that."""

    outcome = Outcome(
        "Prime does not take the key, or the account may not do that", "the key; the account", again=False
    )


class SandboxQuotaError(SandboxError):
    """The account may have no more sandboxes: a person has to pay or to ask for more, or a run to want fewer."""


class SandboxImageError(SandboxError):
    """The image cannot be pulled or built: its name is wrong, or the registry did not answer."""


class SandboxNotReadyError(SandboxError):
    """The sandbox did not come up in time, or ended before it was up."""


class SandboxMemoryError(SandboxError):
    """The sandbox was ended for want of memory, which an agent can bring about."""

    outcome = Outcome("a Prime sandbox ran out of memory or disk", "a larger one; the agent can fill it", again=False)


class SandboxDiskError(SandboxError):
    """Nothing can be written into the sandbox: its disk is full, which an agent can bring about."""

    outcome = SandboxMemoryError.outcome


class SandboxEndedError(SandboxError):
    """The sandbox failed under its rollout, or says nothing sound of a command's end: its lifetime was over, its
    machine went, or its agent did that."""

    outcome = Outcome(
        "after a tool call the sandbox is gone, or failed, or processes could not be ended, wherever it is noticed; or "
        "a Prime sandbox ended and does not say why",
        "programs of the agent's can do that; more memory, or an agent that is not root; a rule of `--env.retries`",
        again=False,
    )


class SandboxGatewayError(SandboxError):
    """The platform or its gateway did not answer soundly (5xx, 408, 429, a broken connection, another's page)."""

    outcome = Outcome(
        "Prime did not answer soundly; what can be repeated was tried three times",
        "`--env.retries` with a rule for it (`configs/eval/prime.toml`)",
    )


class ScoringError(TaskError):
    """Scoring could not be done, whatever the agent made; the message says what to do. Recorded with the stop
    `scoring_error`. Raised while reading what the agent made it is like any error there: see `not_the_agents`."""

    outcome = Outcome(
        "scoring fails on a neutral answer as well, in an untouched sandbox where one is needed, or that could not be "
        "tried: the row, its tests, a rubric's code, or the judge is at fault",
        "what the message names; in the confined sandbox tests cannot fetch tools: use an image",
        again=False,
    )


class ScoringTimeout(Exception):
    """The time was over; `agents`: the agent's own time used it, as it went on in the end, or was half of it."""

    def __init__(self, message: str, *, agents: bool = False) -> None:
        super().__init__(message)
        self.agents = agents


class NotKept(Exception):
    """The content of a sandbox cannot be kept whole; the message says why."""


class ChildrenRun(NotKept):
    """Nothing but children of the agent's own program ran beside it, which it may be waiting for, as for a search."""

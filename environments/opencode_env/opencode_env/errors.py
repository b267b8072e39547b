"""The errors of this distribution, beside those of verifiers from which they come.

HarnessError (verifiers)
├── AgentError
└── ConfigurationError
ToolsetError (verifiers)
└── BrokenBackendError
EnvError (verifiers)
├── BrokenUserError
├── NodeLostError
├── NodeMemoryError
└── RunEndedError
    ├── UnusableEndpointError
    ├── CapReachedError
    └── ClusterError
ValueError
├── RequestRefused
├── RoleRefused
├── DatasetError
└── BackendFileError
NoJsonError
GoldError
FolderError
CannotRun
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from rollout_sandbox.outcomes import Outcome
from verifiers.v1.errors import EnvError, HarnessError, ToolsetError


class AgentError(HarnessError):
    """The agent's program broke after the agent's own programs could have broken it, and that is not to be scored
    (`--env.agent-errors error`); `--env.retries` leaves it alone unless a rule says otherwise."""

    outcome = Outcome(
        "the same with `--env.agent-errors error`",
        "the error names the cause",
        again=False,
        metric="agent_error_own",
    )


class ConfigurationError(HarnessError):
    """A harness cannot run as it is configured, as its first model call shows or as was known before it started."""


class BrokenBackendError(ToolsetError):
    """A tool backend failed at a call. What the agent asked may have broken it, so `--env.retries` leaves it alone
    unless a rule says otherwise: else an agent could have a bad episode played again."""

    outcome = Outcome(
        "a tool backend died or did not answer a call",
        "the agent may have done that; `--env.backends.call-timeout`",
        again=False,
    )


class BrokenUserError(EnvError):
    """A user could not be played on after the agent had spoken to it. What the agent said may be the reason (it was too
    long, or no model would answer it), so `--env.retries` leaves it alone unless a rule says otherwise: else an agent
    could have a bad episode played again."""

    outcome = Outcome(
        "it failed with 400, 413 or 422 once the agent had spoken to it, or said nothing",
        "the agent can make that",
        again=False,
    )


class NodeLostError(EnvError):
    """The worker that played a rollout on a cluster was lost, with its node or without; the next try is another's."""

    outcome = Outcome(
        "the cluster's worker that played it was killed, or its node is gone or cut off",
        "`--env.retries`; the message names the node and its log",
    )


class NodeMemoryError(EnvError):
    """The worker that played a rollout on a cluster was killed for want of memory on its node. A sandbox may have
    brought that about, so `--env.retries` leaves it alone unless a rule says otherwise."""

    outcome = Outcome(
        "Ray killed the worker that played it, as its node had no memory left",
        "`--env.cluster.memory`, a smaller `--env.cluster.per-worker`, or Ray's memory monitor off",
        again=False,
    )


class RunEndedError(EnvError):
    """A run ends early."""


class UnusableEndpointError(RunEndedError):
    """No rollout could reach the endpoint, or get an answer of it."""


class CapReachedError(RunEndedError):
    """The model calls of a run have cost what they may."""


class ClusterError(RunEndedError):
    """The cluster cannot play rollouts as it is configured; the message says why."""


class RequestRefused(ValueError):
    """A request that a provider would not take either; it was never a model call. The message is for the caller."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class RoleRefused(ValueError):
    """The routing headers of a request mean nothing."""


class NoJsonError(Exception):
    """An endpoint answered a request for a whole answer with what is not JSON."""

    def __init__(self, response: httpx.Response) -> None:
        kind = response.headers.get("content-type", "no content type")
        super().__init__(f"the endpoint answered {response.status_code} with {kind}")
        self.text = response.text


class DatasetError(ValueError):
    """A dataset, file, row or column cannot be used as configured."""


class GoldError(Exception):
    """The gold solution cannot be applied; the message says why."""


class BackendFileError(ValueError):
    """A file of tool backends cannot be used; the message has one line for each problem."""

    def __init__(self, path: Path, problems: Sequence[Any]) -> None:
        super().__init__(path, tuple(problems))
        self.path = path
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.path} describes no tool backends:", *map(str, self.problems)])


class FolderError(Exception):
    """A task cannot be told in Harbor's layout; the message says why."""


class CannotRun(Exception):
    """`vf-eval` ended before any rollout; the message holds the end of its log."""

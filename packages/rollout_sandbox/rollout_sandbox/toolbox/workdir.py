"""The one work directory of a rollout, in which setup, agent, verify commands and answer files live.

Every part asks here, so that no part can work elsewhere than the others.
"""

import posixpath
from typing import Any

import verifiers.v1 as vf

from rollout_sandbox.surrogates import has_lone_surrogate

DEFAULT_WORKDIR = "/app"
"""Work directory where nobody names one."""


def work_directory(task: vf.TaskData, seat: vf.AgentConfig) -> str:
    """Absolute path in the sandbox: what the seat's runtime names, else the task, else the harness, else `/app`; what
    is not absolute is a `TaskError`."""
    chosen = getattr(seat.runtime, "workdir", None) or task.workdir or getattr(seat.harness, "agent_workdir", None)
    path = str(chosen or DEFAULT_WORKDIR)
    if not path.startswith("/") or "\0" in path or has_lone_surrogate(path):
        raise vf.TaskError(
            f"work directory {path!r} is not an absolute path: name another as the task's workdir, "
            "--env.agent.harness.agent-workdir or --env.agent.runtime.workdir"
        )
    return "/" + posixpath.normpath(path).lstrip("/")


def workdir_of(trace: vf.Trace[Any, Any, Any]) -> str:
    """The work directory of the rollout that this trace records."""
    seat = trace.agent.config if trace.agent is not None else vf.AgentConfig()
    return work_directory(trace.task.data, seat)


def in_workdir(trace: vf.Trace[Any, Any, Any], path: str) -> str:
    """An absolute path as it is, a relative one below the rollout's work directory."""
    return posixpath.join(workdir_of(trace), path)


def makes_workdir(runtime: vf.Runtime, workdir: str) -> bool:
    """Whether the runtime made this work directory itself when it started, as Prime's does with a command."""
    config = getattr(runtime, "config", None)
    return getattr(config, "type", None) == "prime" and getattr(config, "workdir", None) == workdir

"""Makes a task's work directory ready, and hides the future of its repository.

Invariant: when the agent starts, no object of the repository is there that the checked-out commit does not lead to, and
no path that the row hides. In the sandbox that judges, hidden paths stay.
"""

import base64
import shlex

import verifiers.v1 as vf
from agent_sandbox.toolbox.archives import unpack_archive
from agent_sandbox.toolbox.checked_run import run_checked

from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.programs import argv_of

_SECONDS = 600.0
_BUNDLE = "/tmp/.bundle"


async def place_work(runtime: vf.Runtime, problem: SweProblem, workdir: str) -> None:
    """Put the files of a row without an image into its work directory; a `TaskError` if they cannot be put there, or
    the problem is a trace's, which has their digest alone."""
    if problem.shortened:
        raise vf.TaskError("a trace has its task's files by their digest alone: take the task from its dataset")
    if problem.archive is not None:
        await unpack_archive(runtime, base64.b64decode(problem.archive), workdir, error=vf.TaskError)
    if problem.bundle is not None:
        await runtime.write(_BUNDLE, base64.b64decode(problem.bundle))
        argv = argv_of("clone_bundle", _BUNDLE, workdir, problem.base_commit or "")
        failure = "the row's bundle cannot be cloned"
        await run_checked(runtime, argv, failure, seconds=_SECONDS, error=vf.TaskError)


async def hide_future(runtime: vf.Runtime, problem: SweProblem, workdir: str) -> None:
    """Check out the base commit, and remove what the agent must not see; a `TaskError` if it cannot be done."""
    if problem.hidden:
        removed = shlex.join(["rm", "-rf", "--", *problem.hidden])
        await run_checked(runtime, ["sh", "-c", removed], "hidden paths cannot be removed", error=vf.TaskError)
    argv = argv_of("hide_history", workdir, problem.base_commit or "")
    failure = f"the history of {workdir!r} cannot be hidden"
    advice = "exit code 91: the image lacks git; 92: .git is not a repository"
    await run_checked(runtime, argv, failure, seconds=_SECONDS, error=vf.TaskError, advice=advice)

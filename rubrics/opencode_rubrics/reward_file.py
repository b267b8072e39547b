"""The reward file: the place where a verify command may write a reward of its own.

Invariant: what is read there was written after `prepare_reward_file` returned. The directory is made new in
the sandbox right before the first verify command, so nothing that the agent planted can stand in it. A task
whose verify commands run the agent's code gives that code the right to write there too.
"""

import math

import verifiers.v1 as vf

from opencode_rubrics.sandbox.bounded_file import FileState, read_bounded_text
from opencode_rubrics.sandbox.checked_run import run_checked
from opencode_rubrics.sandbox.programs import program_argv

REWARD_PATH = "/logs/verifier/reward.txt"
_DIRECTORY = REWARD_PATH.rpartition("/")[0]
_MAX_BYTES = 4096


async def prepare_reward_file(runtime: vf.Runtime) -> None:
    """Make `/logs/verifier` new and empty.

    Raises:
        SandboxError: the sandbox is gone.
        TaskError: the directory cannot be made (full or read-only disk, no permission). Scoring without it
            would reward tasks whose verify commands always exit 0 and only write the reward file.
    """
    failure = f"cannot prepare {_DIRECTORY} for scoring"
    await run_checked(runtime, program_argv("fresh_directory", _DIRECTORY), failure, error=vf.TaskError)


async def read_reward_file(runtime: vf.Runtime, *, command_failed: bool) -> float | None:
    """The reward that a verify command wrote; `None` if there is no file.

    An empty file counts as none if a command failed: `scorer > reward.txt` leaves one behind when the
    scorer breaks, and that failure is counted already.

    Raises:
        SandboxError: the sandbox is gone.
        TaskError: the file is not one finite number, or is no regular file of at most 4096 bytes.
    """
    found = await read_bounded_text(runtime, REWARD_PATH, _MAX_BYTES)
    if found.state is FileState.ABSENT:
        return None
    if found.state is not FileState.TEXT:
        raise vf.TaskError(
            f"{REWARD_PATH} is {found.state.name.lower().replace('_', ' ')}; a verify command must write one "
            f"finite number there as plain text"
        )
    content = found.text.strip()
    if not content and command_failed:
        return None
    reward = _finite_float(content)
    if reward is None:
        raise vf.TaskError(f"{REWARD_PATH} holds {content[:200]!r}; a verify command must write one finite number")
    return reward


def _finite_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    # Python reads "1_0" as 10; a scorer that writes it is broken.
    return value if math.isfinite(value) and "_" not in text else None

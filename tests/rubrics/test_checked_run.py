"""A program of ours answers, or fails as what it is: its own failure, too slow, or the end of its sandbox."""

import pytest
import verifiers.v1 as vf
from opencode_rubrics import ScoringError, run_checked
from rollout_sandbox.compat import backend_of
from rollout_sandbox.toolbox.checked_run import OUT_OF_TIME


async def test_an_accepted_exit_code_is_an_answer(box: vf.Runtime) -> None:
    assert (await run_checked(box, ["sh", "-c", "echo yes"], "cannot ask")).stdout == "yes\n"
    assert (await run_checked(box, ["sh", "-c", "exit 3"], "cannot ask", accepted=(0, 3))).exit_code == 3


async def test_a_failure_says_what_failed_how_why_and_what_to_do(box: vf.Runtime) -> None:
    with pytest.raises(ScoringError) as caught:
        await run_checked(
            box, ["sh", "-c", "echo out; echo why >&2; exit 3"], "it failed", error=ScoringError, advice="do that"
        )
    assert str(caught.value) == "it failed (exit code 3): why; do that"
    with pytest.raises(vf.SandboxError) as plain:
        await run_checked(box, ["false"], "it failed")
    assert str(plain.value) == "it failed (exit code 1)"


async def test_a_program_that_does_not_end_is_given_up(box: vf.Runtime) -> None:
    with pytest.raises(vf.TaskError, match=r"too slow \(exit code 124\): did not end within 0\.5 s"):
        await run_checked(box, ["sleep", "60"], "too slow", seconds=0.5, error=vf.TaskError)
    slow = await run_checked(box, ["sleep", "60"], "too slow", seconds=0.5, accepted=(0, OUT_OF_TIME))
    assert slow.exit_code == OUT_OF_TIME


@pytest.mark.podman
async def test_in_a_sandbox_that_is_gone_every_failure_is_the_sandboxs(container: vf.Runtime) -> None:
    await backend_of(container).stop()
    with pytest.raises(vf.SandboxError, match="cannot ask"):
        await run_checked(container, ["true"], "cannot ask", error=vf.TaskError)

"""What breaks while the remote rubric scores is the right error, in bounded time, and leaves no process."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from zipfile import ZipFile

import pytest
import pytest_asyncio
import verifiers.v1 as vf
from opencode_rubrics import (
    AnyTrace,
    RemoteHybridMathConfig,
    RemoteHybridMathRubric,
    ScoringError,
    cleanup,
    run_cleanup,
)
from opencode_rubrics.math import scorer_bundle
from opencode_rubrics.math.scorer_bundle import ensure_bundle
from rollout_sandbox.compat import backend_of

from tests.rubrics.judge_server import Step, judge_server
from tests.rubrics.math_places import Place, PlaceOf, confined_place
from tests.rubrics.math_support import HANG, Scored, score
from tests.support.processes import is_below
from tests.support.sizes import WHOLE
from tests.support.waiting import until, wait_until

pytestmark = pytest.mark.usefixtures("sandboxes")

BOTH = ["confined", pytest.param("root", marks=pytest.mark.podman)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def confined_math(math_rubric: RemoteHybridMathRubric) -> AsyncIterator[Place]:
    """One for all tests of the module, each of which writes its answer anew."""
    async with confined_place(math_rubric) as place:
        yield place


def scorers() -> list[int]:
    """Pids of scorer programs below this process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(b"verdict_programs.in_sandbox" in word for word in words) and is_below(int(entry.name), os.getpid()):
            found.append(int(entry.name))
    return found


async def scoring_that_hangs(place: Place) -> tuple["asyncio.Task[Scored]", list[int]]:
    """A scoring that takes long, and the pids of its scorer, which verifies (its child runs)."""
    await place.do(f"echo '{HANG}' > /app/answer.txt")
    before = set(scorers())

    def new() -> list[int]:
        return [pid for pid in scorers() if pid not in before]

    task = asyncio.create_task(score(place.rubric, place.box, "5"))
    await until(lambda: len(new()) >= 2)
    return task, new()


def none_left(pids: list[int]) -> bool:
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not set(scorers()) & set(pids))
    return not set(scorers()) & set(pids)


@pytest.mark.parametrize("name", BOTH)
async def test_a_sandbox_that_is_gone_before_scoring_is_a_sandbox_error(name: str, place_of: PlaceOf) -> None:
    async with place_of(name) as place:
        await place.do("echo 5 > /app/answer.txt")
        await backend_of(place.box).stop()
        with pytest.raises(vf.SandboxError):
            await score(place.rubric, place.box, "5")


async def test_a_sandbox_that_goes_during_scoring_is_a_sandbox_error(math_rubric: RemoteHybridMathRubric) -> None:
    async with confined_place(math_rubric) as place:
        task, pids = await scoring_that_hangs(place)
        await backend_of(place.box).stop()
        with pytest.raises(vf.SandboxError):
            await task
        assert none_left(pids)


@pytest.mark.podman
async def test_a_container_that_goes_before_scoring_with_an_agent_user_is_a_sandbox_error(place_of: PlaceOf) -> None:
    async with place_of("agent-user") as place:
        await place.do("echo 5 > /app/answer.txt")
        subprocess.run(["podman", "kill", str(place.box.info.id)], check=True, capture_output=True)
        with pytest.raises(vf.SandboxError):
            await score(place.rubric, place.box, "5", agent_user="agent")


async def test_a_killed_scorer_is_an_error_and_no_zero(confined_math: Place) -> None:
    task, pids = await scoring_that_hangs(confined_math)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ScoringError, match=r"ended without a result|crashed in the sandbox"):
        await task
    await confined_math.do("echo 5 > /app/answer.txt")
    assert (await score(confined_math.rubric, confined_math.box, "5")).reward == 1


async def test_an_answer_that_hangs_is_a_zero_at_its_deadline(confined_math: Place) -> None:
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig(timeout_seconds=0.3))
    await confined_math.do(f"echo '{HANG}' > /app/answer.txt")
    scored = await score(rubric, confined_math.box, "5")
    assert (scored.reward, scored.reason) == (0, "timed_out")


async def test_a_scoring_deadline_that_expires_is_an_error_and_ends_the_scorer(confined_math: Place) -> None:
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig(scorer_timeout=1.5, timeout_seconds=60))
    await confined_math.do(f"echo '{HANG}' > /app/answer.txt")
    before = set(scorers())
    with pytest.raises(ScoringError, match=r"did not finish within 1.5 s.*scorer_timeout"):
        await score(rubric, confined_math.box, "5")
    assert not set(scorers()) - before


async def test_a_cancelled_scoring_ends_the_scorer_and_the_sandbox_lives_on(confined_math: Place) -> None:
    task, pids = await scoring_that_hangs(confined_math)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert none_left(pids)
    assert await confined_math.box.alive()


async def test_a_judge_that_is_down_is_an_error_after_scoring_in_the_sandbox(confined_math: Place) -> None:
    await confined_math.do("echo 'two apples' > /app/answer.txt")
    async with judge_server(Step(status=500)) as server:
        config = RemoteHybridMathConfig(use_judge_fallback=True, judge_client=server.client, judge_max_retries=0)
        with pytest.raises(vf.TaskError, match="answered 500"):
            await score(RemoteHybridMathRubric(config), confined_math.box, "one pear")


async def test_the_judge_sees_all_of_the_answer_file_between_its_marks(confined_math: Place) -> None:
    await confined_math.do("printf 'A number {reference}\\nwith two divisors\\n' > /app/answer.txt")
    async with judge_server(Step("A")) as server:
        config = RemoteHybridMathConfig(use_judge_fallback=True, judge_client=server.client)
        scored = await score(RemoteHybridMathRubric(config), confined_math.box, "a prime")
        prompt = server.requests[0]["messages"][0]["content"]
    assert "]\nA number {reference}, with two divisors\n[" in prompt
    assert (scored.reward, scored.record["decided_by"], scored.record["place"]) == (1.0, "judge", "sandbox")


async def test_an_empty_reference_is_an_error_before_anything_runs(confined_math: Place) -> None:
    with pytest.raises(ScoringError, match="needs a task with an answer"):
        await score(confined_math.rubric, confined_math.box, "")
    with pytest.raises(ScoringError, match="needs a live sandbox"):
        await score(confined_math.rubric, None, "5")


async def test_without_the_bind_the_bundle_is_uploaded(confined_math: Place, shared_confined: vf.Runtime) -> None:
    await shared_confined.write("/app/answer.txt", b"0.5")
    scored = await score(confined_math.rubric, shared_confined, r"\frac{1}{2}")
    assert (scored.reward, scored.record["place"]) == (1.0, "sandbox")


async def test_no_room_for_the_bundle_is_an_error(confined_math: Place, shared_confined: vf.Runtime) -> None:
    await shared_confined.run(["sh", "-c", "echo 5 > /app/answer.txt; chmod 555 /tmp"], {})
    with pytest.raises(ScoringError, match="has no place for the scorer"):
        await score(confined_math.rubric, shared_confined, "5")
    await shared_confined.run(["chmod", "755", "/tmp"], {})


@pytest.mark.podman
async def test_an_image_without_a_usable_python_is_scored_outside_of_it(place_of: PlaceOf) -> None:
    async with place_of("bare-agent-user") as place:
        await place.do("echo 0.5 > /app/answer.txt")
        await place.box.run(["sh", "-c", "rm $(command -v python3)"], {})
        scored = await score(place.rubric, place.box, r"\frac{1}{2}", agent_user="agent")
        assert (scored.reward, scored.record["place"]) == (1.0, "host")


@pytest.mark.podman
async def test_the_answer_of_a_root_agent_is_scored_outside_and_others_by_our_own_scorer(place_of: PlaceOf) -> None:
    async with place_of("bare-agent-user") as place:
        await place.do("echo 5 > /app/answer.txt")
        assert (await score(place.rubric, place.box, "5")).record["place"] == "host"
        assert (await score(place.rubric, place.box, "5", agent_user="root")).record["place"] == "host"
        # An image's own scorer is another one than ours.
        await place.box.write((await ensure_bundle()).archive_target, b"an older one")
        assert (await score(place.rubric, place.box, "5", agent_user="agent")).record["place"] == "sandbox"


async def test_the_bundle_is_made_once_and_a_cache_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not WHOLE:  # two thousand files more are made alike
        monkeypatch.setattr(scorer_bundle, "_DISTRIBUTIONS", ("math-verify",))
    bundle = await ensure_bundle(tmp_path / "cache")
    packed = ZipFile(bundle.archive).namelist()
    assert {"math_verify/parser.pyc", "mathverdict/verdict.py", "verdict_programs/in_sandbox.pyc"} <= set(packed)
    assert bundle == await ensure_bundle(tmp_path / "cache")
    kept = [entry.name for entry in (tmp_path / "cache").iterdir() if not entry.name.startswith(".")]
    assert kept == [bundle.directory.name]
    (tmp_path / "file").write_text("")
    with pytest.raises(ScoringError, match=r"cannot be made.*OPENCODE_ENV_CACHE"):
        await ensure_bundle(tmp_path / "file" / "cache")


class Hooked(RemoteHybridMathRubric):
    """With hooks, one of which is cancelled and one of which must still run."""

    @cleanup(priority=2)
    async def first(self, trace: AnyTrace) -> None:
        trace.info["hooks"] = ["first"]
        raise asyncio.CancelledError

    @cleanup(priority=1)
    async def second(self, trace: AnyTrace, runtime: vf.Runtime) -> None:
        trace.info["hooks"].append("second" if await runtime.alive() else "dead")


async def test_a_hook_that_is_cancelled_keeps_no_other_from_running(confined_math: Place) -> None:
    rubric = Hooked(RemoteHybridMathConfig())
    await confined_math.do("echo 5 > /app/answer.txt")
    scored = await score(rubric, confined_math.box, "5")
    failures = await run_cleanup([rubric], {"trace": scored.trace, "runtime": confined_math.box})
    assert scored.trace.info["hooks"] == ["first", "second"]
    assert len(failures) == 1


@pytest.mark.podman
async def test_a_shell_that_a_root_agent_replaced_is_no_error_of_the_scorer(place_of: PlaceOf) -> None:
    async with place_of("root") as place:
        await place.do("echo 5 > /app/answer.txt; cp -L /bin/sh /opt/real; printf '#!/opt/real\\nexit 3\\n' > /opt/sh")
        await place.do("chmod 755 /opt/sh; ln -sf false /usr/bin/true; mv /opt/sh $(readlink -f /bin)/sh")
        for right, answer in ((1, "5"), (0, "6")):
            scored = await score(place.rubric, place.box, answer)
            assert (scored.reward, scored.record["place"]) == (right, "host")


@pytest.mark.podman
async def test_a_disk_that_an_agent_user_filled_is_scored_on_the_host(place_of: PlaceOf) -> None:
    async with place_of("bare-agent-user") as place:
        await place.do("echo 5 > /app/answer.txt")
        await place.box.run(["sh", "-c", "rm -rf /var/lib && : > /var/lib"], {})  # as little room as on a full disk
        scored = await score(place.rubric, place.box, "5", agent_user="agent")
        assert (scored.reward, scored.record["place"]) == (1, "host")

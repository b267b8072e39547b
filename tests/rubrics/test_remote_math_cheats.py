"""What an agent may do to be rewarded for a wrong answer, in every kind of place; none of it raises a score.

A cheat runs as the agent, then the rubric scores. Where the scorer runs inside, a right answer must still count.
"""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import verifiers.v1 as vf
from opencode_rubrics import RemoteHybridMathConfig, RemoteHybridMathRubric
from opencode_rubrics.math.verdict_programs.in_sandbox import UnusableAnswer, read_answer
from pydantic import ByteSize
from rollout_sandbox.confined import LocalSandboxConfig

from tests.rubrics.math_places import Place, PlaceOf, confined_place
from tests.rubrics.math_support import Scored, score

pytestmark = pytest.mark.usefixtures("sandboxes")

SOLUTION = "27182818"
PLACES = ["confined", *(pytest.param(name, marks=pytest.mark.podman) for name in ("agent-user", "root")), "prime"]
CHEATS = ["planted_modules startup_hooks fake_python poisoned_profiles", "preload", "replaced_programs"]
"""What is planted together. The last two can end a container's own programs."""
MOST_SECONDS = 60


@pytest_asyncio.fixture(params=PLACES, loop_scope="module")
async def place(request: pytest.FixtureRequest, place_of: PlaceOf) -> AsyncIterator[Place]:
    async with place_of(request.param) as made:
        yield made


async def scored_in(place: Place) -> Scored:
    scored = await score(place.rubric, place.box, SOLUTION, agent_user=place.user)
    assert scored.seconds < MOST_SECONDS
    return scored


async def leaked(place: Place) -> bool:
    """Whether the agent saw the solution; asked after scoring."""
    return (await place.box.run(["test", "-e", "/app/leaked"], {})).exit_code == 0


@pytest.mark.parametrize("cheats", CHEATS)
async def test_no_planted_file_raises_a_score_or_spoils_a_right_one(place: Place, cheats: str) -> None:
    await place.do("echo 1 > /app/answer.txt")
    for cheat in cheats.split():
        await place.cheat(cheat)
    try:
        wrong = await scored_in(place)
    except (vf.SandboxError, vf.TaskError):
        assert place.name == "root"
        return
    assert wrong.reward == 0
    assert wrong.record["place"] == ("host" if place.name == "root" else "sandbox")
    if place.name != "root":
        assert wrong.reason == "different"
        await place.do(f"echo {SOLUTION} > /app/answer.txt")
        assert (await scored_in(place)).reward == 1


async def test_a_daemon_that_spies_and_rewrites_the_answer_learns_and_earns_nothing(place: Place) -> None:
    await place.do("echo 1 > /app/answer.txt")
    await place.cheat("spying_daemon")
    for _ in range(2):
        assert (await scored_in(place)).reward == 0
    assert not await leaked(place)


async def test_a_spy_that_outlives_the_agent_sees_no_solution(place_of: PlaceOf) -> None:
    async with place_of("confined") as place:
        await place.cheat("spying_daemon")
        await place.box.mark_agent_start()  # type: ignore[attr-defined]  # as a tool server that an agent took over
        assert "spy.sh" in await place.do("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        for _ in range(2):
            assert (await scored_in(place)).reward == 0
        assert "spy.sh" in await place.do("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert not await leaked(place)


async def test_a_watcher_that_outlives_the_agent_sees_no_file_appear(place_of: PlaceOf) -> None:
    program = (Path(__file__).parent / "cheats" / "inotify_spy.py").read_text()
    async with place_of("confined") as place:
        await place.do(f"echo {SOLUTION} > /app/answer.txt")
        await place.box.run_background(["/usr/bin/python3", "-c", program], {}, "/tmp/spy.log")
        await place.do("until [ -e /app/.seen ]; do sleep 0.02; done; sleep 0.2; : > /app/probe")
        await place.do("until grep -q probe /app/.seen; do sleep 0.02; done")
        await place.box.mark_agent_start()  # type: ignore[attr-defined]  # as a tool server that an agent took over
        assert (await scored_in(place)).reward == 1
        assert set((await place.do("cat /app/.seen")).split()) == {"/app/probe"}


async def test_a_sandbox_in_which_nothing_can_be_written_is_scored_all_the_same(place_of: PlaceOf) -> None:
    async with place_of("confined") as place:
        await place.do(f"echo {SOLUTION} > /app/answer.txt; chmod 555 /app /tmp /home /home/agent /logs /run /dev/shm")
        assert "Permission denied" in await place.do("touch /tmp/x /app/x /logs/x 2>&1 || true")
        assert (await scored_in(place)).reward == 1
        await place.do("chmod 755 /app /tmp /home /home/agent /logs /run /dev/shm")


async def test_a_disk_that_is_filled_at_the_last_moment_does_not_end_the_scorer() -> None:
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig(max_workers=1, timeout_seconds=1.5))
    async with confined_place(rubric, LocalSandboxConfig(max_disk=ByteSize(16 << 20))) as place:
        fill = "for f in 1 2 3 4; do head -c 16M /dev/zero >f$f; done"
        answer = r"cd /app; echo '(1/3)!+10^{-2000}\sqrt{2}' >answer.txt"
        await place.agent.run(["sh", "-c", f"{answer}; {fill}"], {})  # ended where its limit is seen in time
        while (used := await place.agent.run(["du", "-sm", "/app"], {})).exit_code:
            pass  # ended where the limit is seen meanwhile
        assert int(used.stdout.split()[0]) >= 16
        scored = await score(rubric, place.box, SOLUTION)
        assert (scored.reward, scored.reason) == (0, "timed_out")
    await rubric.teardown()


@pytest.mark.podman
async def test_a_full_disk_is_scored_by_what_is_on_it(place_of: PlaceOf) -> None:
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig(max_workers=1, answer_path="/dev/shm/answer.txt"))
    async with place_of("root") as place:
        await place.do(f"echo {SOLUTION} > /dev/shm/answer.txt; cat /dev/zero > /dev/shm/fill 2>/dev/null || true")
        assert "No space left" in await place.do(
            "cat /etc/passwd 2>&1 > /dev/shm/more || true; cp /etc/passwd /dev/shm 2>&1 || true"
        )
        assert (await score(rubric, place.box, SOLUTION)).reward == 1
        assert (await score(rubric, place.box, "5")).reward == 0
    await rubric.teardown()


ODD_FILES = {
    "echo 27182818 > solution.txt; ln -s solution.txt answer.txt": "symlink",
    "mkfifo answer.txt": "not_a_file",
    "truncate -s 2G answer.txt": "oversized",
    "ln -s /dev/zero answer.txt": "symlink",
    "mkdir answer.txt": "not_a_file",
    "printf '27182818\\0' > answer.txt": "binary",
    "printf '\\377\\376 5' > answer.txt": "binary",
    "true": "absent",
}


@pytest.mark.parametrize("make", ODD_FILES)
async def test_an_odd_answer_file_is_told_by_a_word(make: str, tmp_path: Path) -> None:
    subprocess.run(["sh", "-c", make], cwd=tmp_path, check=True)
    with pytest.raises(UnusableAnswer, match=f"^{ODD_FILES[make]}$"):
        read_answer(str(tmp_path / "answer.txt"), 1 << 16)


async def test_odd_answer_files_and_output_written_in_advance_are_a_zero_and_a_read_only_workdir_changes_nothing(
    place: Place,
) -> None:
    for make, reason in [*list(ODD_FILES.items())[:3], (": > answer.txt", "empty")]:
        await place.do(f"cd /app; rm -rf answer.txt; {make}")
        scored = await scored_in(place)
        assert (scored.reward, scored.reason) == (0, reason)
    await place.cheat("advance_output")
    assert (await scored_in(place)).reward == 0
    await place.do(f"echo {SOLUTION} > /app/answer.txt")
    await place.cheat("read_only_workdir")
    assert (await scored_in(place)).reward == 1

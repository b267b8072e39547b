"""What is left of a run that is interrupted in the middle of its rollouts: nothing, and its cleanup hooks have run.

Every run has one rollout in its setup, one in a model call that never answers, and one that is being scored.
"""

import asyncio
import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from tests.support.held_model import HeldModel
from tests.support.replies import bash, faulty
from tests.support.rows import probe, probe_arguments, script, write_rows
from tests.support.user_home import FinishedEvaluation, RunningEvaluation, UserHome, is_closed
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

ROWS = [
    probe("preparing", before="touch /app/made; sleep 59701"),
    probe("asking", hook="hangs"),
    probe("scoring", check="sleep 59702"),
]
POLICY = ScriptPolicy(
    script("asking", bash("touch made; setsid sleep 59703 >/dev/null 2>&1 &"), faulty("hang")),
    script("scoring", bash("touch made"), Reply(text="done")),
)
SLEEPS = ("sleep 59701", "sleep 59702", "sleep 59703")
HOOKS = ["env-first", "task", "rubric", "env-last"]


@dataclass(frozen=True)
class Interrupted:
    """What a run left after its signals."""

    finished: FinishedEvaluation
    journal: list[dict[str, Any]]
    leftovers: list[str]


async def in_the_middle(home: UserHome, model: ScriptedModel, evaluation: RunningEvaluation) -> None:
    """Wait until every rollout is where it shall be interrupted."""

    def everywhere() -> bool:
        commands = [command.strip() for command in home.processes().values()]
        return model.active == 1 and all(sleep in commands for sleep in SLEEPS)

    try:
        await until(everywhere)
    except TimeoutError:
        pytest.fail(f"{home.processes()}\n{evaluation.log}")


async def interrupt(home: UserHome, *signals: signal.Signals) -> Interrupted:
    """Start a run, send it signals 0.3 s apart, wait for its end."""
    rows = write_rows(home.root / "rows.jsonl", ROWS)
    journal = home.root / "journal.jsonl"
    arguments = [*probe_arguments(rows, env_id="probe-env"), "-c", "3"]
    environment = {"PROBE_JOURNAL": str(journal)}
    async with (
        ScriptedModel(POLICY) as model,
        home.running("interrupted", model.base_url, *arguments, env=environment) as run,
    ):
        await in_the_middle(home, model, run)
        for number in signals:
            run.process.send_signal(number)
            await asyncio.sleep(0.3)
        finished = await run.finish()
    written = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    return Interrupted(finished, written, home.leftovers())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Interrupted]:
    """One run per way of interrupting it, all at once."""
    ways: dict[str, Sequence[signal.Signals]] = {
        "once": (signal.SIGINT,),
        "twice": (signal.SIGINT, signal.SIGINT),
        "terminated": (signal.SIGTERM,),
    }

    async def interrupt_all() -> list[Interrupted]:
        homes = [UserHome(tmp_path_factory.mktemp(name)) for name in ways]
        return await asyncio.gather(*(interrupt(home, *ways[name]) for home, name in zip(homes, ways, strict=True)))

    return dict(zip(ways, asyncio.run(interrupt_all()), strict=True))


WAYS = ["once", "twice", "terminated"]


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_run_leaves_no_process_no_file_and_no_port(runs: dict[str, Interrupted], way: str) -> None:
    run = runs[way]
    assert run.finished.exit_code == 130, run.finished.log
    assert run.leftovers == []
    assert run.finished.ports
    assert all(is_closed(port) for port in run.finished.ports)


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_rollout_still_runs_its_hooks_in_a_live_sandbox(runs: dict[str, Interrupted], way: str) -> None:
    for row in ROWS:
        seen = [entry for entry in runs[way].journal if entry["task"] == row["id"]]
        assert [entry["hook"] for entry in seen] == HOOKS
        assert all(entry["files"] == ["made"] for entry in seen)
        assert all(entry["rewards"] == [] for entry in seen)


def test_an_interrupted_run_still_tears_its_rubrics_down(runs: dict[str, Interrupted]) -> None:
    for way in WAYS:
        assert [entry["hook"] for entry in runs[way].journal].count("teardown") == 1


async def test_after_kill_9_no_process_lives_on_the_next_run_sweeps_files_and_neighbours_are_not_disturbed(
    home: UserHome,
) -> None:
    rows = write_rows(home.root / "rows.jsonl", ROWS)
    scored = probe_arguments(write_rows(home.root / "scored.jsonl", [probe("scored", check="test -f made")]))
    async with (
        ScriptedModel(POLICY) as hanging,
        HeldModel(ScriptPolicy.of(bash("touch made"), Reply(text="done"))) as slow,
        home.running("killed", hanging.base_url, *probe_arguments(rows, env_id="probe-env"), "-c", "3") as victim,
        home.running("neighbour", slow.base_url, *scored) as neighbour,
    ):
        await in_the_middle(home, hanging, victim)
        await until(lambda: slow.active == 1)
        assert len(home.sandboxes()) == len(ROWS) + 1
        victim.process.kill()
        killed = await victim.finish()
        slow.released.set()
        finished = await neighbour.finish()
        assert [trace.reward for episode in finished.episodes for trace in episode.traces] == [1.0], finished.log
        await until(lambda: not home.processes())  # the kernel tells the sandboxes, which takes a moment
        assert killed.exit_code == -signal.SIGKILL
        assert all(is_closed(port) for port in killed.ports)
        # What the victim left is swept by whoever starts a sandbox next: the neighbour's for agent code, or this run's.
        after = await home.run("after", slow.base_url, *scored)
    assert after.exit_code == 0, after.log
    assert home.leftovers() == []

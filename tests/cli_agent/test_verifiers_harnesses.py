"""verifiers' own harnesses in the confined sandbox: `vf-eval opencode-env --env.agent.harness.id …`, real programs.

Its `bash` is among the agents of `tests/conformance`.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from opencode_env.agents.named.npm import harness_binds
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy, ToolCall
from opencode_env.scripted_model.policy import ChatRequest
from opencode_rubrics.cache import cache_root
from verifiers.v1.harnesses import PiHarness, PiHarnessConfig

from tests.support.rows import script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("sandboxes")]

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""How a mini-swe-agent ends."""

PI = "0.86.1"
"""The Pi that verifiers 0.4.0 pins. Later versions pin one of which a package mirror may not have every part."""

TESTS_CACHE = cache_root() / "tests-verifiers"
CHECK = "grep -qx 42 answer.txt && ! touch /opt/harness-files/*/touched"
ROWS = {
    name: {"id": name, "question": f"row {name}: write 42 into answer.txt", "verify": [CHECK]}
    for name in ("holds", "right", "wrong")
}
ANSWERS = {"holds": 42, "right": 42, "wrong": 41}

HOLD_EVERY_LOCK = """
for file in $(find /var/tmp/vf-* /opt/harness-files -maxdepth 2); do
    (exec 9<"$file" && flock -n 9 && echo "$file" >>held && exec sleep 600) >/dev/null 2>&1 &
done
until grep -qx /var/tmp/vf-node.install.lock held && grep -qx /var/tmp/vf-pi/install.lock held; do sleep 0.1; done
rm -rf /opt/harness-files/* /var/tmp/vf-*/*; echo held
"""


def shell(command: str) -> Reply:
    """A turn that runs one shell command."""
    return Reply(tool_calls=(ToolCall(name="bash", arguments={"command": command}),))


NO_PRICES = ["--env.agent.harness.env.LITELLM_LOCAL_MODEL_COST_MAP", "True"]
"""LiteLLM 1.105 logs from a thread that it cannot fetch prices while it is imported, and may then wait for itself."""


PLAIN = ScriptPolicy(script("right", shell(f"echo {ANSWERS['right']} >answer.txt"), shell(SUBMIT)))


class HoldingPolicy:
    """In row "holds" the agent takes every lock it can open and keeps them until the other rows have ended.

    Row "right" waits for that; with two rollouts at a time, row "wrong" is set up from begin to end beside the holder.
    """

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, request: ChatRequest, /) -> Reply:
        (name,) = [name for name in ROWS if f"row {name}:" in request.prompt]
        if request.turn == 0:
            self.events.append(f"{name} starts")
            return shell(f"echo {ANSWERS[name]} >answer.txt" + (HOLD_EVERY_LOCK if name == "holds" else ""))
        if name == "holds" and "lock held" not in self.events:
            self.events.append("lock held")
        waits_for = {"holds": "wrong ends", "right": "lock held", "wrong": "lock held"}[name]
        if waits_for not in self.events:
            return shell("sleep 0.2")
        self.events.append(f"{name} ends")
        return Reply(text="done")


async def play(
    home: UserHome, harness: str, policy: ScriptPolicy | HoldingPolicy, rows: Path, *more: str
) -> tuple[FinishedEvaluation, int]:
    """Run the rows with a harness; returns the run and how many requests the model got."""
    async with ScriptedModel(policy) as model:
        arguments = ["opencode-env", "--env.taskset.dataset", str(rows), "--env.agent.harness.id", harness, *more]
        # The user's own uv cache: at this home every package would be downloaded again.
        uv_cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
        finished = await home.run(harness, model.base_url, *arguments, env={"UV_CACHE_DIR": uv_cache})
        return finished, len(model.requests)


@pytest.fixture(scope="module")
def holding() -> HoldingPolicy:
    """What the model of Pi's run saw."""
    return HoldingPolicy()


@pytest.fixture(scope="module")
def runs(shared_home: UserHome, holding: HoldingPolicy) -> Mapping[str, FinishedEvaluation]:
    """All runs, by harness; one after the other, since each is busy enough for two cores."""
    # Environments of scripts are made once for this machine.
    for name in ("confined-scripts", "confined-script-locks"):
        kept, place = (root / name for root in (TESTS_CACHE, shared_home.home / ".cache/verifiers/runtimes"))
        kept.mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(kept)
    one = write_rows(shared_home.root / "one.jsonl", [ROWS["right"]])
    all_rows = write_rows(shared_home.root / "all.jsonl", list(ROWS.values()))

    async def run() -> Mapping[str, FinishedEvaluation]:
        # A first download, which may take a while, is not on the clock of a run.
        await harness_binds(PiHarness(PiHarnessConfig(id="pi", version=PI)))
        mini, _ = await play(shared_home, "mini_swe_agent", PLAIN, one, *NO_PRICES)
        pi, _ = await play(shared_home, "pi", holding, all_rows, "-c", "2", "--env.agent.harness.version", PI)
        return {"mini_swe_agent": mini, "pi": pi}

    return asyncio.run(run())


@pytest.mark.parametrize("harness", ["mini_swe_agent", "pi"])
def test_its_agent_works_in_the_sandbox_and_is_scored_there(
    runs: Mapping[str, FinishedEvaluation], harness: str
) -> None:
    finished = runs[harness]
    assert finished.exit_code == 0, finished.log
    for name in ("right", "wrong") if harness == "pi" else ("right",):
        trace = finished.trace(name)
        assert (trace.ok, trace.stop_condition) == (True, "agent_completed"), finished.log
        assert trace.reward == float(ANSWERS[name] == 42)
        assert trace.agent is not None
        assert trace.agent.config.harness is not None
        assert trace.agent.config.harness.id == harness
        assert trace.agent.config.runtime.type == "subprocess"


def test_an_agent_that_holds_every_lock_does_not_stall_its_neighbours(
    runs: Mapping[str, FinishedEvaluation], holding: HoldingPolicy
) -> None:
    assert runs["pi"].trace("holds").reward == 1.0, runs["pi"].log
    held = holding.events.index("lock held")
    assert held < holding.events.index("wrong starts") < holding.events.index("holds ends")


def test_what_is_shown_names_no_registry_and_has_no_lock(runs: Mapping[str, FinishedEvaluation]) -> None:
    assert runs["pi"].exit_code == 0
    trees = [path for path in (cache_root() / "harness-files").iterdir() if path.is_dir()]
    assert {path.name.rpartition("-")[0] for path in trees} >= {"node", "pi"}
    names = {entry.name for tree in trees for entry in (*tree.iterdir(), *(tree / "node_modules").iterdir())}
    assert names.isdisjoint({".package-lock.json", "package-lock.json", ".npmrc"})
    assert not [name for name in names if name.endswith(".lock")]


def test_nothing_is_left_behind(runs: Mapping[str, FinishedEvaluation], shared_home: UserHome) -> None:
    assert all(finished.exit_code == 0 for finished in runs.values())
    assert shared_home.leftovers() == []


def test_the_unconfined_mode_refuses_it_before_anything_runs(tmp_path: Path) -> None:
    home = UserHome(tmp_path)
    rows = write_rows(home.root / "rows.jsonl", [ROWS["right"]])
    run = play(home, "mini_swe_agent", PLAIN, rows, "--env.sandbox.confine", "false")
    finished, requests = asyncio.run(run)
    assert finished.error("right").startswith("HarnessError: harness 'mini_swe_agent' installs and drives a program")
    assert "leave out --env.sandbox.confine false" in finished.error("right")
    assert requests == 0
    assert [*home.home.glob(".cache/verifiers/*")] == []
    assert home.leftovers() == []

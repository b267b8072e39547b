"""A run is replayed: it differs where a tool answers by chance, and with --pin it does not.

The light program plays, in `make test-whole` OpenCode.
"""

import asyncio
import json
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from scripts.replay import Cassette, Replay, cassettes, main, replay
from tests.support.replies import bash, call
from tests.support.rows import write_rows
from tests.support.user_home import UserHome

pytestmark = pytest.mark.usefixtures("module_light_but_in_whole")

ROW = {"id": "by-chance", "question": "Write a number of your choice to /app/answer.txt.", "answer": "7"}
SETUP = ["mkdir -p /app/in && seq 1 30 | split -l 1 - /app/in/part"]
SCRIPT = [
    call("grep", pattern="1"),
    bash("cat /proc/sys/kernel/random/uuid"),
    bash("seq 1 9000; cat /proc/sys/kernel/random/uuid"),
    bash("printf 7 > /app/answer.txt"),
    Reply(text="Done."),
]


@pytest.fixture(scope="module")
def run(shared_home: UserHome, module_light_but_in_whole: None) -> Path:
    """The output directory of one rollout with two results that come by chance."""

    async def evaluated() -> Path:
        rows = write_rows(shared_home.work / "rows.jsonl", [{**ROW, "setup": SETUP}])
        arguments = ("opencode-env", "--env.taskset.dataset", str(rows), "-r", "1")
        async with ScriptedModel(ScriptPolicy.of(*SCRIPT)) as model:
            played = await shared_home.run("recorded", model.base_url, *arguments)
        assert [trace.reward for episode in played.episodes for trace in episode.traces] == [1.0]
        return shared_home.root / "runs" / "recorded"

    return asyncio.run(evaluated())


def played(source: Path, task: str | None = None, *, pin: bool = False) -> Replay:
    """The replay of the only rollout."""
    (cassette,) = cassettes(source, task, None)
    return asyncio.run(replay(cassette, pin=pin))


def test_the_first_difference_is_named_and_pinned_results_leave_none(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = played(run, "by-chance")
    assert (one.same, one.turns, one.reward, one.error) == (False, len(SCRIPT), 1.0, None)
    places = [(found.turn, found.message, found.role) for found in one.differences]
    assert places == [(3, 6, "tool"), (4, 8, "tool")]
    assert one.differences[0].how.startswith("result of bash: ")
    assert f"{len(SCRIPT)} turns: differs at turn 3, message 6 (tool): result of bash: " in str(one)
    file = tmp_path / "by-chance.json"
    assert main([str(run), "-o", str(file)]) == 0
    assert Cassette.load(file).task["key"] == "by-chance"
    assert main([str(file), "--pin"]) == 0
    assert capsys.readouterr().out.endswith(f"{len(SCRIPT)} turns, 2 tool results put in: the same\n")


@pytest.mark.parametrize(
    ("played_to", "said"), [("1.9.2", "1.18.33 -> 1.9.2"), ("1.18.33", "1.18.33"), (None, "1.18.33")]
)
def test_the_recorded_release_is_named_before_the_one_that_was_played_to(played_to: str | None, said: str) -> None:
    trace = {"id": "t", "info": {"agent": {"version": "1.18.33"}}, "rewards": {"passed": {"score": 1.0}}}
    cassette = Cassette.model_validate({"task": {"key": "k"}, "config": {}, "traces": [trace]})
    one = Replay(cassette, played_to, turns=3, differences=[], replaced=0, reward=1.0, error=None)
    assert str(one) == f"t  k  OpenCode {said}  3 turns: the same"


def test_what_cannot_be_replayed_is_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "branch.json"
    assert main([str(run), "--trace", "zzz", "-o", str(file)]) == 1
    assert "its tasks: by-chance" in capsys.readouterr().err
    assert main([str(run), "-o", str(file)]) == 0
    saved = json.loads(file.read_text())
    saved["traces"][0]["branch"] = {"trace_id": "t", "turn": 3}
    file.write_text(json.dumps(saved))
    assert main([str(file)]) == 1
    assert "not played: it goes on from a kept turn" in capsys.readouterr().out
    saved["traces"][0]["branch"] = None
    saved["task"]["data"]["verify"] = 7
    file.write_text(json.dumps(saved))
    assert main([str(file)]) == 1
    assert "not played: the task cannot be read" in capsys.readouterr().out
    assert main([str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err

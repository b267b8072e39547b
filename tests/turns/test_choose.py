"""`opencode-turns list`, `choose` and `tree` over kept turns and runs that are written by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from opencode_runs.turns.__main__ import main
from opencode_runs.turns.tree import interval

from tests.difficulty.lines import Line, episode, trace, write_run
from tests.turns.test_format import write_kept


def rollout(name: str, reward: float | None = 1.0, origin: tuple[str, int] | None = None, **changes: Any) -> Line:
    """An episode of one rollout, from its beginning or from a kept turn."""
    info = {} if origin is None else {"branch": {"trace_id": origin[0], "turn": origin[1], "digest": "d", **changes}}
    return episode("k", trace(reward, id=name, info=info), task_id="fix-median")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Turns 2, 4, 6 of two rollouts; that of the second's turn 4 cannot be restored."""
    for name in ("t1", "t2"):
        for turn in (2, 4, 6):
            reason = "a program of the agent's was running" if (name, turn) == ("t2", 4) else None
            digest = f"{name}{turn}"
            write_kept(tmp_path / "kept" / name, turn, trace_id=name, unrestorable=reason, digest=digest)
    return tmp_path / "kept"


@pytest.fixture
def first(tmp_path: Path, kept: Path) -> Path:
    """The run that kept them: t1 solved its task, t2 did not."""
    config = {"env": {"turns": {"keep": str(kept)}}}
    return write_run(tmp_path / "first", [rollout("t1"), rollout("t2", 0.0)], config=config)


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Continuations: of turn 2 of t1 with all rewards, of turn 4 with one, which others went on from again."""
    lines = [rollout(f"a{reward}", reward, ("t1", 2)) for reward in (0.0, 0.25, 1.0)]
    lines += [rollout("b", 1.0, ("t1", 4)), rollout("c", 1.0, ("t1", 4))]
    lines.append(rollout("other", 0.5, ("t1", 2), same_request=False))
    lines += [rollout("deep", 0.0, ("b", 6)), rollout("resumed", 0.0, ("t2", 2), resumed=True)]
    failed = rollout("broken", None, ("t1", 4))
    failed["traces"][0] |= {"ok": False, "errors": [{"type": "ProviderError"}]}
    return write_run(tmp_path / "second", [*lines, failed])


def chosen(file: Path) -> list[tuple[str, int]]:
    """Rollouts and turns of a dataset that was written."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    places = [Path(row["kept_turn"]) for row in rows]
    assert [row["digest"] for row in rows] == [f"{place.parent.name}{int(place.name)}" for place in places]
    return [(place.parent.name, int(place.name)) for place in places]


def test_a_list_names_what_cannot_be_restored_and_the_reward_of_each_rollout(
    first: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", str(first)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "6 kept turns, 5 can be restored"
    (bad,) = [line for line in lines if "a program of the agent's was running" in line]
    assert bad.split()[:3] == ["t2", "k", "4"]
    assert "0.00" in bad
    assert main(["list", str(kept), "--json"]) == 0
    turns = json.loads(capsys.readouterr().out)["turns"]
    assert [(one["trace_id"], one["turn"], one["reward"]) for one in turns] == [
        (name, turn, None) for name in ("t1", "t2") for turn in (2, 4, 6)
    ]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], [("t1", 2), ("t1", 4), ("t1", 6), ("t2", 2), ("t2", 6)]),
        (["--turn", "4"], [("t1", 4)]),
        (["--turn", "-1", "--turn", "2"], [("t1", 2), ("t1", 6), ("t2", 2), ("t2", 6)]),
        (["--every", "4"], [("t1", 4)]),
        (["--failed"], [("t2", 2), ("t2", 6)]),
        (["--below", "1.5", "--limit", "2"], [("t1", 2), ("t1", 4)]),
        (["--spread"], [("t1", 2)]),
    ],
)
def test_turns_are_chosen_by_number_by_failure_and_by_spread(
    first: Path, second: Path, tmp_path: Path, options: list[str], wanted: list[tuple[str, int]]
) -> None:
    file = tmp_path / "chosen.jsonl"
    assert main(["choose", str(first), "--run", str(second), "-o", str(file), *options]) == 0
    assert chosen(file) == wanted
    assert main(["choose", str(first), "-o", str(file)]) == 2
    assert chosen(file) == wanted


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--turn", "3"], 1, "no rollout kept a turn 3"),
        (["--every", "5"], 1, "no turn that was kept is a multiple of 5"),
        (["--failed"], 1, "no reward of these rollouts is known"),
        (["--spread"], 1, "no turn has two continuations with a reward"),
        (["-o", "rows.csv"], 2, "name it .jsonl"),
    ],
)
def test_nothing_to_choose_is_one_line_and_no_file(
    kept: Path, tmp_path: Path, options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "chosen.jsonl"
    assert main(["choose", str(kept), "-o", str(file), *options]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not file.exists()


def test_a_run_without_kept_turns_says_so(second: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(second)]) == 2
    assert "its configuration names no --env.turns.keep" in capsys.readouterr().err


def test_the_tree_has_the_value_of_each_turn_with_its_interval(
    first: Path, second: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    png = tmp_path / "values.png"
    pytest.importorskip("matplotlib")
    assert main(["tree", str(first), str(second), "--json", "--png", str(png)]) == 0
    (trunk,) = json.loads(capsys.readouterr().out)["trunks"]
    assert (trunk["trace_id"], trunk["task"], trunk["reward"]) == ("t1", "fix-median", 1.0)
    two, four = trunk["turns"]
    assert (two["turn"], sorted(two["rewards"]), two["failed"]) == (2, [0.0, 0.25, 1.0], 1)
    assert two["value"] == pytest.approx(1.25 / 3)
    assert two["low"] < two["value"] < two["high"]
    assert (four["turn"], four["value"], four["failed"]) == (4, 1.0, 1)
    (deep,) = four["continuations"]
    assert (deep["trace_id"], deep["turns"][0]["value"]) == ("b", 0.0)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert main(["tree", str(second)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "t1 (fix-median)"
    assert lines[2].split() == ["turn", "4", "1.00", "[0.33,", "1.00]", "of", "2", "continuations,", "1", "failed"]
    assert lines[3] == "      b (fix-median, reward 1.00)"
    assert main(["tree", str(first)]) == 1


def test_an_interval_is_jeffreys_for_shares_and_normal_for_other_rewards() -> None:
    assert list(interval([1.0] * 5 + [0.0] * 5)) == pytest.approx([0.224, 0.776], abs=0.002)
    assert list(interval([2.0, 4.0])) == pytest.approx([3 - 1.96, 3 + 1.96])
    assert interval([]) == interval([7.0]) == (None, None)

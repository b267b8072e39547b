"""What `--check` fails for: each thing that a trainer must not use, in a run that is sound but for it."""

from pathlib import Path
from typing import Any

import pytest
from opencode_runs.trainable.__main__ import main
from opencode_runs.trainable.findings import MEANINGS, Flaw
from opencode_runs.trainable.inspection import inspect

from tests.difficulty.lines import episode, seat, write_run
from tests.trainable import test_contradictions, test_sections
from tests.trainable.doctored import group, nodes, run, sub, trace
from tests.trainable.graphs import Line, answer, prompt

FAILED = {"ok": False, "errors": [{"type": "SandboxError", "message": "gone"}]}
FORK = {"message": 3, "turn": 2, "role": "tool", "how": "content: 'b' stands where 'a' stood"}


def changed(number: int, **changes: Any) -> Line:
    """A trace one of whose nodes is another."""
    all_nodes = nodes()
    all_nodes[number] |= changes
    return trace(nodes=all_nodes)


FORKED = [*nodes(), prompt(1, 9), answer(4, 10)]
SPOILT: dict[str, tuple[Line, Flaw, str]] = {
    "an evaluation client": (
        trace(nodes=[{"sampled": False}, {"sampled": True, "parent": 0}]), Flaw.NO_TOKENS, "turns: 1",
    ),
    "a fork that was noted": (
        trace(info={"history": {"forks": 1, "first": [FORK]}}), Flaw.FORKS,
        "1 fork: message 3 from turn 2 on: content: 'b' stands",
    ),
    "a fork that nobody noted": (trace(nodes=FORKED), Flaw.FORKS, "1 fork: its branches share turns of the model"),
    "a fork of a sub conversation": (sub(nodes=FORKED), Flaw.FORKS, 'of seat "sub" (other): 1 fork'),
    "a circle": (changed(1, parent=3), Flaw.GRAPH, "node 1 hangs on node 3"),
    "a mask that is too short": (changed(0, mask=[False]), Flaw.LENGTHS, "node 0: 2 tokens, 1 mask entries"),
    "no mask at all": (changed(2, mask=[]), Flaw.LENGTHS, "node 2: 1 tokens, 0 mask entries"),
    "a logprob too few": (changed(1, logprobs=[-0.5]), Flaw.LOGPROBS, "node 1: 2 trained tokens, 1 logprobs"),
    "a logprob too many": (changed(3, logprobs=[-0.5, -0.5]), Flaw.LOGPROBS, "node 3: 1 trained tokens, 2 logprobs"),
    "no logprobs": (
        trace(nodes=[node | {"logprobs": []} for node in nodes()]), Flaw.LOGPROBS, "; and 1 messages more",
    ),
    "a logprob that is not a number": (changed(1, logprobs=[float("nan"), -1.0]), Flaw.LOGPROB_VALUES, "1 of 2, the"),
    "a logprob that JSON could not write": (changed(1, logprobs=[None, -1.0]), Flaw.LOGPROB_VALUES, "the first nan"),
    "a logprob of minus infinity": (changed(3, logprobs=[float("-inf")]), Flaw.LOGPROB_VALUES, "the first -inf"),
    "a logprob that the engine did not have": (
        changed(3, logprobs=[-9999.0]), Flaw.LOGPROB_VALUES, "1 of 1, the first -9999",
    ),
    "a logprob above zero": (changed(3, logprobs=[0.25]), Flaw.LOGPROB_VALUES, "1 of 1, the first 0.25"),
    "a turn without tokens": (
        changed(3, token_ids=[], mask=[], logprobs=[]), Flaw.UNTRAINED, "node 3: none of its tokens is marked",
    ),
    "a prompt marked for training": (
        changed(2, mask=[True], logprobs=[-0.5]), Flaw.NOT_SAMPLED, "message node 2: 1 tokens",
    ),
    "no reward": (trace(None), Flaw.NO_REWARD, 'seat "agent"'),
    "a sub trace that trains without a reward": (sub(None), Flaw.NO_REWARD, 'seat "sub"'),
    "a reward that is not a number": (trace(float("nan")), Flaw.REWARD_VALUES, "correct"),
    "a reward that JSON could not write": (
        trace(rewards={"correct": {"weight": 1.0}}), Flaw.REWARD_VALUES, "correct",
    ),
    "one of two rewards": (
        trace(rewards={"correct": {"score": 1.0, "weight": 1.0}, "judged": None}), Flaw.REWARD_VALUES, "judged",
    ),
    "an infinite reward": (trace(float("inf")), Flaw.REWARD_VALUES, "correct"),
    "a failed trace with a reward": (trace(0.0, **FAILED), Flaw.ERROR_REWARD, "reward 0"),
}  # fmt: skip


@pytest.mark.parametrize(("spoilt", "flaw", "said"), SPOILT.values(), ids=SPOILT)
def test_what_a_trainer_must_not_use_fails_and_is_named(
    spoilt: Line, flaw: Flaw, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = run(tmp_path, spoilt)
    assert main([str(place), "--check"]) == 1
    printed = capsys.readouterr()
    assert printed.err == f"opencode-trainable: a trainer must not use this: {flaw}\n"
    named = next(line for line in printed.out.splitlines() if said in line)
    assert named.startswith(f"  trace {spoilt['id']}")
    assert f"not for training: {flaw} (1): {MEANINGS[flaw].what}" in printed.out
    assert f"  what to do: {MEANINGS[flaw].do}" in printed.out
    assert main([str(place)]) == 0, "without --check it only says so"
    assert main([str(place), "--check", "--allow", flaw]) == 0


def test_every_finding_that_fails_is_provoked() -> None:
    tables = (*SPOILT.values(), *test_contradictions.CONTRADICTIONS.values(), *test_sections.FOUND.values())
    elsewhere = {Flaw.TOO_LONG, Flaw.UNREADABLE, Flaw.MIXED}
    assert {flaw for _, flaw, _ in tables} | elsewhere == {flaw for flaw, meaning in MEANINGS.items() if meaning.fails}
    assert set(MEANINGS) == set(Flaw)


def test_a_branch_longer_than_the_trainer_takes_fails(tmp_path: Path) -> None:
    place = run(tmp_path, trace())
    assert main([str(place), "--check", "--max-tokens", "8"]) == 0
    assert main([str(place), "--check", "--seq-len", "7"]) == 1
    [finding] = inspect([place], max_tokens=4).findings[:1]
    assert (finding.flaw, finding.count) == (Flaw.TOO_LONG, 3)
    assert finding.places[0].endswith("branch 0: 8 tokens, 2 trained ones behind the 4th")


def test_a_damaged_line_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = run(tmp_path, trace())
    traces = place / "traces.jsonl"
    traces.write_bytes(b'{"id": 1}\n' + traces.read_bytes())
    assert main([str(place), "--check"]) == 1
    assert "unreadable" in capsys.readouterr().err


SOUND: dict[str, Line] = {
    "one branch": trace(),
    "a failed trace": trace(None, **FAILED),
    "a sub trace that does not train": sub(None, agent=seat("sub", trainable=False)),
    "sub conversations with one beginning": sub(nodes=[prompt(None, 1), answer(0, 2), answer(0, 3)]),
    "logprobs of certain tokens": changed(3, logprobs=[0.0]),
    "a record of another environment": trace(info={"history": "none", "logprobs": 3}),
}


@pytest.mark.parametrize("sound", SOUND.values(), ids=SOUND)
def test_what_a_trainer_may_use_passes(sound: Line, tmp_path: Path) -> None:
    assert main([str(run(tmp_path, sound)), "--check"]) == 0


def test_what_would_not_train_anyway_is_not_looked_into(tmp_path: Path) -> None:
    forked = trace(None, nodes=FORKED, agent=seat("judge", trainable=False))
    assert main([str(run(tmp_path, forked)), "--check"]) == 0


def test_a_run_in_which_nothing_would_train_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = write_run(tmp_path / "run", [episode("a", trace(None, **FAILED))])
    assert main([str(place), "--check"]) == 1
    assert "nothing would train" in capsys.readouterr().err


def test_a_sound_trace_of_a_failed_episode_does_not_train(tmp_path: Path) -> None:
    place = run(tmp_path, trace(), trace(None, **FAILED))
    traces = inspect([place]).traces
    assert [found.unused_because for found in traces[2:]] == ["its episode failed: another trace", "SandboxError"]


def test_groups_that_teach_nothing_and_groups_cut_short_are_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write_run(tmp_path / "run", [*group(0, 1), *group(1, 1, key="always")], config={"num_rollouts": 4})
    assert main([str(place), "--check"]) == 0
    printed = capsys.readouterr().out
    assert "note: no-spread (1)" in printed
    assert "  always: every reward is 1, of 2 rollouts" in printed
    assert "note: incomplete (2)" in printed
    assert "  half: 2 of 4 rollouts" in printed

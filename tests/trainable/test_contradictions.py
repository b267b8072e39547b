"""What a trace says against itself: calls that counted otherwise, things that stand twice, numbers not finite."""

from pathlib import Path
from typing import Any

import pytest
from opencode_runs.trainable.__main__ import main
from opencode_runs.trainable.findings import Flaw

from tests.trainable.doctored import nodes, run, sub, trace
from tests.trainable.graphs import Line, answer, calls, prompt

ERROR = {"type": "ProviderError", "message": "gone"}


def damaged(number: int | None = None, *, made: list[Line] | None = None, **changes: Any) -> Line:
    """A trace one of whose nodes was changed after its calls were recorded."""
    whole = nodes() if made is None else made
    found = trace(nodes=[dict(node) for node in whole], calls=calls(whole))
    if number is not None:
        found["nodes"][number] |= changes
    return found


def tried_again(tries: int) -> Line:
    """The agent of a trace that is tried again so many times after one kind of error."""
    retries = {"max_retries": 0, "rules": [{"type": "ProviderError", "max_retries": tries}]}
    return {"name": "agent", "config": {"model": "small", "retries": retries}}


def recalled(number: int, **changes: Any) -> Line:
    """A trace one of whose calls is another."""
    found = damaged()
    found["calls"][number] |= changes
    return found


def says(role: str, text: str, **more: Any) -> Line:
    """A message."""
    return {"message": {"role": role, "content": text, **more}}


def rewritten(histories: int) -> list[Line]:
    """One conversation whose system message is another one at each turn, and what was said stands behind it."""
    made: list[Line] = []
    for turn in range(histories):
        made.append(prompt(None, 100 + turn) | says("system", f"It is {turn} o'clock."))
        made.append(prompt(len(made) - 1, 1) | says("user", "What is it?"))
        for before in range(turn):
            made.append(prompt(len(made) - 1, 20 + before) | says("assistant", f"Step {before}"))
            made.append(prompt(len(made) - 1, 30 + before) | says("user", f"Result {before}"))
        made.append(answer(len(made) - 1, 40 + turn) | says("assistant", f"Step {turn} "))
    return made


def called_anew(histories: int) -> list[Line]:
    """One conversation of tool calls, of which each request says everything anew and in its own spelling."""
    made: list[Line] = []

    def call(turn: int, text: str) -> Line:
        return says("assistant", "", tool_calls=[{"id": f"drawn-{turn:04}", "name": "bash", "arguments": text}])

    for turn in range(histories):
        made.append(prompt(None, 100 + turn) | says("system", f"It is {turn} o'clock."))
        made.append(prompt(len(made) - 1, 50 + turn) | says("user", f"What is it, at {turn}?"))
        for before in range(turn):
            made.append(prompt(len(made) - 1, 20 + before) | call(before, '{"command": "spelled anew"}'))
            made.append(prompt(len(made) - 1, 30) | says("tool", "cut", tool_call_id=f"drawn-{before:04}"))
        made.append(answer(len(made) - 1, 40 + turn) | call(turn, '{"command":"ls"}'))
    return made


TWO = [prompt(None, 1) | says("user", "One?"), answer(0, 2), prompt(None, 3) | says("user", "Two?"), answer(2, 4)]
"""Two conversations."""

TWICE = [*TWO, *(node | {"parent": None if node["parent"] is None else node["parent"] + 2} for node in TWO[2:])]
"""The second one stands there again."""

TIMED = {"time": {"start": 1.5, "end": 2.5}}
CONTRADICTIONS: dict[str, tuple[Line, Flaw, str]] = {
    "an answer that was cut, with its mask and logprobs": (
        damaged(1, token_ids=[3, 4], mask=[False, True], logprobs=[-0.04]), Flaw.USAGE,
        "message node 1: 1 trained tokens of 2 sampled; and 1 more",
    ),
    "a sampled token that became context": (
        damaged(1, mask=[False, False, True], logprobs=[-0.05]), Flaw.USAGE, "message node 1: 1 trained tokens of 2",
    ),
    "a message of a request without tokens": (
        damaged(0, token_ids=[], mask=[]), Flaw.USAGE, "message node 1: 1 tokens before its answer, its call had 3",
    ),
    "a message that hangs on another one": (
        damaged(2, parent=0), Flaw.USAGE, "message node 3: 4 tokens before its answer, its call had 7",
    ),
    "a call that counted nothing": (recalled(0, usage=None), Flaw.USAGE, "message node 1: its call says nothing"),
    "an answer that is not sampled": (
        damaged(3, sampled=False, mask=[False] * 2, logprobs=[]), Flaw.CALLS, "node 3 as its answer, which is not",
    ),
    "a call of no answer": (recalled(1, node=9), Flaw.CALLS, "names message node 9, which is not there; and 1 more"),
    "a call too few": (trace(calls=calls(nodes())[:1]), Flaw.CALLS, "node 3 is an answer, and no call names it"),
    "no calls": (trace(calls=[]), Flaw.CALLS, "message node 1 is an answer, and no call names it; and 1 more"),
    "no messages": (trace(nodes=[], calls=calls(nodes())), Flaw.CALLS, "names message node 1, which is not there"),
    "sub calls whose trace is gone": (
        trace(info={"rlm": {"sub_trace": "gone"}}), Flaw.CALLS, "its sub calls are those of trace gone, which is not",
    ),
    "two calls of one answer": (
        trace(calls=[*calls(nodes()), *calls(nodes())]), Flaw.CALLS, "2 calls name message node 1",
    ),
    "a call of another model": (recalled(1, model="large"), Flaw.SETTINGS, "node 3: answered by large, not by small"),
    "a call that was sampled otherwise": (
        recalled(1, sampling={"temperature": 0.1}), Flaw.SETTINGS, "node 3: sampled with temperature 0.1, not 0.7",
    ),
    "a conversation whose temperature changes": (
        recalled(1, sampling={"temperature": 0.7, "top_p": 0.5}), Flaw.SETTINGS, "sampled with top_p 0.5, not None",
    ),
    "a conversation twice": (trace(nodes=TWICE), Flaw.REPEATED, "message nodes 2 and 4 are the same"),
    "an answer twice": (
        trace(nodes=[prompt(None, 1), answer(0, 2, timestamp=9.5), answer(0, 2, timestamp=9.5)]), Flaw.REPEATED,
        "message nodes 1 and 2 are the same",
    ),
    "an answer twice, one behind the other": (
        trace(
            nodes=[prompt(None, 1), answer(0, 2, timestamp=9.5), prompt(1, 3), answer(2, 2, timestamp=9.5)]
        ), Flaw.REPEATED, "an answer of one moment stands in it twice",
    ),
    "a call twice": (
        trace(calls=[call | TIMED for call in calls(nodes())]), Flaw.REPEATED, "calls 0 and 1 are the same",
    ),
    "three roots of one conversation": (
        trace(nodes=rewritten(3)), Flaw.FORKS, "2 forks: message node 5 tells again what was said",
    ),
    "three roots that say one thing in other tokens": (
        trace(nodes=[node for n in range(3) for node in (prompt(None, 10 + n), answer(2 * n, n))]), Flaw.FORKS,
        "2 forks: message node 2 tells again",
    ),
    "three roots of one conversation of tool calls that was spelled anew": (
        trace(nodes=called_anew(3)), Flaw.FORKS, "2 forks: message node 5 tells again",
    ),
    "forks that only a metric counts": (trace(metrics={"history_forks": 2.0}), Flaw.FORKS, "2 forks"),
    "an answer to nothing": (
        trace(nodes=[answer(None, 1), prompt(0, 2), answer(1, 3)]), Flaw.GRAPH, "node 0: an answer to nothing",
    ),
    "a user's message that was sampled": (
        damaged(3, message={"role": "user", "content": "?"}), Flaw.NOT_SAMPLED, "node 3: a message of role user",
    ),
    "a token below zero": (damaged(0, token_ids=[1, -2]), Flaw.TOKEN_IDS, "node 0: 1 of 2, the first -2"),
    "a token of no vocabulary": (
        damaged(0, token_ids=[2_000_000, 2]), Flaw.TOKEN_IDS, "node 0: 1 of 2, the first 2000000",
    ),
    "a token that is not a whole number": (
        damaged(0, token_ids=[1.5, 2]), Flaw.TYPES, "nodes: Expected `int`, got `float` - at `$[0].token_ids[0]`",
    ),
    "logprobs as text": (
        damaged(3, logprobs=["-0.5"]), Flaw.TYPES, "nodes: Expected `float`, got `str` - at `$[3].logprobs[0]`",
    ),
    "a mask of numbers": (damaged(0, mask=[0, 0]), Flaw.TYPES, "nodes: Expected `bool`, got `int` - at `$[0].mask[0]`"),
    "a reward as text": (
        trace(rewards={"correct": {"score": "1", "weight": 1.0}}), Flaw.TYPES, "rewards.correct.score",
    ),
    "logprobs that are all zero": (
        trace(nodes=[node | {"logprobs": [0.0] * len(node.get("logprobs", []))} for node in nodes()]),
        Flaw.LOGPROB_ZEROS, "3 of 3",
    ),
    "a long answer whose logprobs are all zero": (
        trace(nodes=[*nodes(), prompt(3, 1), answer(4, *range(40), logprobs=[0.0] * 40)]), Flaw.LOGPROB_ZEROS,
        "message node 5: 40 of 40",
    ),
    "a token of the frame that trains in place of a sampled one": (
        damaged(1, mask=[True, False, True]), Flaw.MASK, "node 1: others stand between or behind them",
    ),
    "is_content of another length": (damaged(0, is_content=[True]), Flaw.LENGTHS, "node 0: 2 tokens, 1 entries of"),
    "advantages of another length": (damaged(1, advantages=[0.5]), Flaw.LENGTHS, "2 trained tokens, 1 advantages"),
    "rewards whose sum is infinite": (
        trace(rewards={name: {"score": 1.7e308, "weight": 1.0} for name in "ab"}), Flaw.REWARD_VALUES, "a, b",
    ),
    "rewards whose sum a trainer cannot hold": (
        trace(rewards={name: {"score": 3e38, "weight": 1.0} for name in "ab"}), Flaw.REWARD_VALUES, "the sum of a, b",
    ),
    "a reward of infinite weight": (
        trace(rewards={"a": {"score": 1.0, "weight": float("inf")}}), Flaw.REWARD_VALUES, "a",
    ),
    "a trace that is ok with an error": (
        trace(errors=[ERROR]), Flaw.STANDING, "it is ok and has the error ProviderError",
    ),
    "a trace that is ok with an error that was never tried again": (
        trace(errors=[ERROR], agent=tried_again(0)), Flaw.STANDING, "it is ok and has the error ProviderError",
    ),
    "a trace that is ok and stopped by its error": (
        trace(errors=[ERROR], stop_condition="provider_error", agent=tried_again(2)), Flaw.STANDING, "it is ok and has",
    ),
    "a trace of sub calls that is ok with an error": (sub(errors=[ERROR]), Flaw.STANDING, 'of seat "sub"'),
}  # fmt: skip


@pytest.mark.parametrize(("spoilt", "flaw", "said"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_trace_that_contradicts_itself_fails_and_is_named(
    spoilt: Line, flaw: Flaw, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = run(tmp_path, spoilt)
    assert main([str(place), "--check"]) == 1
    printed = capsys.readouterr()
    assert printed.err == f"opencode-trainable: a trainer must not use this: {flaw}\n"
    assert any(said in line and line.startswith(f"  trace {spoilt['id']}") for line in printed.out.splitlines())
    assert main([str(place), "--check", "--allow", flaw]) == 0


CERTAIN = [prompt(None, 1), answer(0, 2, 3, logprobs=[0.0, 0.0])]
SOUND: dict[str, Line] = {
    "errors of earlier tries": trace(errors=[ERROR], agent=tried_again(2)),
    "a call that failed": trace(calls=[*calls(nodes()), {"node": None, "error": ERROR, "model": "small"}]),
    "tokens from a cache": recalled(0, usage={"prompt_tokens": 1, "cached_input_tokens": 2, "completion_tokens": 2}),
    "one answer twice, sampled at two times": trace(
        nodes=[prompt(None, 1), answer(0, 2, timestamp=9.5), answer(0, 2, timestamp=9.75)]
    ),
    "several conversations": trace(nodes=TWO),
    "a conversation that goes on behind another with its first message": trace(
        nodes=[
            prompt(None, 1), answer(0, 2), prompt(None, 3), answer(2, 4), prompt(1, 5) | says("user", "Go on."),
            answer(4, 6),
        ]
    ),
    "an agent that notes its forks, whose programs repeat what was said": trace(
        nodes=rewritten(3), metrics={"history_forks": 0.0}
    ),
    "examples in the prompts of two conversations": trace(
        nodes=[
            prompt(None, 1) | says("user", "1 + 1"), prompt(0, 2) | says("assistant", "2"),
            prompt(1, 3) | says("user", "1 + 2"), answer(2, 4) | says("assistant", "3"),
            prompt(None, 5) | says("system", "Add."), prompt(4, 1) | says("user", "1 + 1"),
            prompt(5, 2) | says("assistant", "2"), prompt(6, 3) | says("user", "2 + 2"), answer(7, 4),
        ]
    ),
    "a short answer that was certain": trace(nodes=CERTAIN),
    "a sampling that the seat left open": trace(
        calls=[call | {"sampling": {"temperature": 0.7, "top_p": 0.5}} for call in calls(nodes())]
    ),
    "a length that an agent bounds by what is left": recalled(1, sampling={"temperature": 0.7, "max_tokens": 5}),
}  # fmt: skip


@pytest.mark.parametrize("sound", SOUND.values(), ids=SOUND)
def test_what_only_looks_like_a_contradiction_passes(sound: Line, tmp_path: Path) -> None:
    assert main([str(run(tmp_path, sound)), "--check"]) == 0


def test_a_token_beyond_the_vocabulary_that_was_named_fails(tmp_path: Path) -> None:
    place = run(tmp_path, trace())
    assert main([str(place), "--check", "--vocab-size", "9"]) == 0
    assert main([str(place), "--check", "--vocab-size", "8"]) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ok": True}, 'its episode is ok, and its trace of seat "agent" is not'),
        ({"ok": False}, "its episode failed, and nothing in it did"),
    ],
)
def test_an_episode_and_its_traces_agree_on_whether_they_failed(
    changes: Line, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = trace(None, ok=False, errors=[ERROR]) if changes["ok"] else trace()
    assert main([str(run(tmp_path, failed, **changes)), "--check"]) == 1
    printed = capsys.readouterr()
    assert said in printed.out
    assert "must not use this: standing" in printed.err


@pytest.mark.parametrize(("tries", "code"), [(None, 0), (2, 0), (0, 1)])
def test_errors_of_an_episode_that_is_ok_are_those_of_earlier_tries(
    tries: int | None, code: int, tmp_path: Path
) -> None:
    config = None if tries is None else {"env": {"retries": {"max_retries": tries, "rules": []}}}
    assert main([str(run(tmp_path, trace(), config=config, errors=[ERROR])), "--check"]) == code

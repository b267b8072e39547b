"""What of an episode counts as an attempt."""

import json
from typing import Any

import pytest
from opencode_runs.difficulty.rate import Attempt, Failure, tries
from opencode_runs.errors import LineError, VersionError
from opencode_runs.traces.record import parse_line

from tests.difficulty.lines import Line, episode, seat, trace

ERROR = {"type": "SandboxError", "message": "gone"}
BROKEN: dict[str, Any] = {"ok": False, "errors": [ERROR]}
PASSED, FAILED, OUT_OF_TIME = (
    Attempt(reward, turns=1, tokens=110, timed_out=late) for reward, late in ((1.0, False), (0.0, False), (0.0, True))
)
ENV_ERROR: dict[str, Any] = {"errors": [{"type": "EnvError"}]}
SUB, JUDGE = seat("sub", "tiny"), seat("judge", trainable=False)


def found(line: Line, chosen: str | None = None) -> list[Attempt | Failure]:
    return [outcome for _, outcome in tries(parse_line(json.dumps(line).encode()), chosen)]


COUNTED: dict[str, tuple[Line, list[Attempt | Failure]]] = {
    "a scored trace with its turns and tokens": (episode("a", trace(0.5)), [Attempt(0.5, 1, 110, timed_out=False)]),
    "rewards summed by weight": (
        episode("a", trace(rewards={"a": {"score": 1.0, "weight": 0.5}, "b": {"score": 1.0, "weight": 0.25}})),
        [Attempt(0.75, turns=1, tokens=110, timed_out=False)],
    ),
    "a failed trace, by its last error": (
        episode("a", trace(0.0, ok=False, errors=[{"type": "HarnessError"}, ERROR])),
        [Failure("SandboxError")],
    ),
    "an agent timeout": (
        episode("a", trace(0.0, stop_condition="agent_timeout", is_timeout=True)),
        [OUT_OF_TIME],
    ),
    "traces of the sub seat": (episode("a", trace(0.0, agent=SUB), trace(1.0), trace(0.0, agent=SUB)), [PASSED]),
    "a failed sub call": (episode("a", trace(agent=SUB, **BROKEN), trace(1.0)), [PASSED]),
    "a failed judge seat, which leaves the reward in doubt": (
        episode("a", trace(1.0), trace(agent=JUDGE, **BROKEN)),
        [Failure("another seat's error")],
    ),
    "a dropped trace": (episode("a", trace(0.0, dropped="no signal")), [Failure("dropped", unscored=True)]),
    "an error of the env, which spoils a sound trace": (
        episode("a", trace(1.0), ok=False, **ENV_ERROR),
        [Failure("EnvError")],
    ),
    "errors of earlier tries of an episode that ended well": (
        episode("a", trace(1.0, errors=[ERROR]), **ENV_ERROR),
        [PASSED],
    ),
    "an episode that never had a trace": (episode("a", ok=False, **ENV_ERROR), [Failure("EnvError")]),
    "a best-of-n seat, whose failed trace does not spoil the others": (
        episode("a", trace(1.0), trace(**BROKEN), trace(0.0)),
        [PASSED, Failure("SandboxError"), FAILED],
    ),
    "the first trainable seat where there is no agent": (
        episode("a", trace(0.0, agent=seat("proposer", trainable=False)), trace(1.0, agent=seat("solver"))),
        [PASSED],
    ),
    "a first request that did not fit into the window": (
        episode("a", trace(0.0, nodes=[], num_total_tokens=0, stop_condition="max_total_tokens")),
        [Failure("no answer, stopped by max_total_tokens")],
    ),
    "a program that never asked the model": (
        episode("a", trace(0.0, nodes=[], num_total_tokens=0)),
        [Failure("no model call")],
    ),
    "an agent out of time before its first reply": (
        episode("a", trace(0.0, nodes=[], num_total_tokens=0, stop_condition="agent_timeout")),
        [Attempt(0.0, turns=0, tokens=0, timed_out=True)],
    ),
}


@pytest.mark.parametrize(("line", "outcomes"), COUNTED.values(), ids=COUNTED)
def test_what_is_an_attempt_and_what_a_failure(line: Line, outcomes: list[Attempt | Failure]) -> None:
    assert found(line) == outcomes


@pytest.mark.parametrize(
    "rewards",
    [{}, {"a": None}, {"a": {"score": 1.0}, "b": None}, {"a": {"score": None, "weight": 1.0}}],
    ids=["none", "not computed", "one of two not computed", "NaN, which JSON writes as null"],
)
def test_a_trace_without_a_whole_reward_is_unscored(rewards: dict[str, Any]) -> None:
    assert found(episode("a", trace(rewards=rewards))) == [Failure("no reward", unscored=True)]


@pytest.mark.parametrize("stage", ["setup", "finalize", "scoring", "boot"])
def test_any_other_stage_out_of_time_is_an_error_though_verifiers_calls_it_ok(stage: str) -> None:
    assert found(episode("a", trace(0.0, stop_condition=f"{stage}_timeout"))) == [Failure(f"{stage}_timeout")]


def test_a_named_seat_counts_instead() -> None:
    assert found(episode("a", trace(1.0), trace(0.0, agent=seat("checker"))), "checker") == [FAILED]


@pytest.mark.parametrize(
    ("line", "reason", "torn"),
    [
        (b'{"id": "x", "task": {"ke', "not whole JSON", True),
        (b"[1, 2]", "not a verifiers episode", False),
        (b'{"prompt": "v0 result", "reward": 1.0}', "not a verifiers episode", False),
        (b'{"id": "x", "task": {"type": "T", "data": {}}, "traces": []}', "names no task", False),
        (b"\xff\xfe\x00", "not whole JSON", True),
    ],
    ids=["cut off", "a list", "another format", "no key", "not text"],
)
def test_a_line_that_is_no_episode_says_why(line: bytes, reason: str, torn: bool) -> None:
    with pytest.raises(LineError, match=reason) as error:
        parse_line(line)
    assert error.value.torn is torn


def test_a_trace_of_another_schema_is_refused() -> None:
    with pytest.raises(VersionError, match="schema 2"):
        parse_line(json.dumps(episode("a", trace(version=2))).encode())

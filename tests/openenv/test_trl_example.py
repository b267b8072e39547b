"""What `examples/trl` makes of rollouts, for TRL's `rollout_func` and for its OpenEnv sessions."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opencode_openenv import RolloutResult

from examples.trl.rollouts import Prompt, Rollouts, rollout_reward, rows_of
from tests.openenv.test_sequence import rollout, turn
from tests.test_structure import ROOT

GOOD = rollout(turn("a", [1, 2], [3, 4]), turn("b", [1, 2, 3, 4, 5], [6], "a"), reward=0.5)
FAILED = RolloutResult(error="SandboxError: gone", training_trace_reason="there was no rollout")


def trainer(**changes: Any) -> Any:
    """What is read of a trainer."""
    sampling = {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    return SimpleNamespace(
        **{**sampling, "max_completion_length": 77, "processing_class": SimpleNamespace(pad_token_id=9), **changes}
    )


def test_rows_are_as_long_as_each_other_and_a_failed_rollout_trains_nothing() -> None:
    rows = rows_of([GOOD, FAILED], 9, 100)
    assert rows["prompt_ids"] == [[1, 2], [9]]
    assert rows["completion_ids"] == [[3, 4, 5, 6], [9]]
    assert rows["logprobs"] == [[-3.0, -4.0, 0.0, -6.0], [0.0]]
    assert rows["env_mask"] == [[1, 1, 0, 1], [0]]
    assert rollout_reward(rows["rollout_reward"], prompts=[]) == [0.5, None]
    assert rows["rollout_error"] == ["", "SandboxError: gone"]


def test_what_is_too_long_loses_its_end_and_what_then_trains_nothing_its_reward() -> None:
    assert rows_of([GOOD], 9, 4)["completion_ids"] == [[3, 4]]
    assert rows_of([GOOD], 9, 4)["rollout_reward"] == [0.5]
    assert rows_of([GOOD], 9, 2)["rollout_reward"] == [None]


def test_a_call_carries_the_trainers_policy_and_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def run(self: Rollouts, call: dict[str, Any]) -> RolloutResult:
        asked.append(call)
        return GOOD

    monkeypatch.setattr(Rollouts, "_run", run)
    rollouts = Rollouts("http://server", "http://engine/v1", "m", {"do it": {"verify": ["true"]}})
    prompts: list[Prompt] = ["do it", [{"role": "user", "content": "do it"}]]
    assert len(rollouts(prompts, trainer())["prompt_ids"]) == 2
    assert asked[0] == asked[1]
    assert asked[0] == {
        "instruction": "do it",
        "verify": ["true"],
        "base_url": "http://engine/v1",
        "model": "m",
        "token_ids": True,
        "temperature": 0.7,
        "max_tokens_cap": 77,
    }
    with pytest.raises(ValueError, match="no task for the prompt"):
        rollouts(["another"], trainer())
    with pytest.raises(ValueError, match="top_p"):
        rollouts(["do it"], trainer(top_p=0.9))


def test_sessions_are_what_trls_door_for_openenv_asks_for(newest_python: Path) -> None:
    late = GOOD.model_copy(update={"stop_condition": "agent_timeout", "error": "agent timeout"})
    answers = json.dumps([json.loads(result.model_dump_json()) for result in (GOOD, late, FAILED)])
    program = Path(__file__).parent / "clients" / "session.py"
    done = subprocess.run(
        [str(newest_python), str(program), answers],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    good, timed_out, failed = json.loads(done.stdout.splitlines()[-1])
    assert (good["ended"], good["reward"]) == ("well", 0.5)
    assert good["turns"] == [[[3, 4], [0, 0, 1, 1]], [[6], [0, 0, 0, 0, 0, 1]]]
    assert (timed_out["ended"], timed_out["reward"]) == ("TimeoutError: agent timeout", 0.5)
    assert failed == {"ended": "UnscorableError: SandboxError: gone"}

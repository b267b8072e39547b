"""The training trace of a rollout: what the engine saw and sampled, in the form that OpenEnv 0.10 checks."""

import json
import subprocess
from pathlib import Path

import pytest
from opencode_env.openenv.catalog import resolve_endpoint
from opencode_env.openenv.engine import Engine
from opencode_env.openenv.result import RolloutResult
from opencode_env.openenv.spec import RolloutSpec

from tests.openenv.playing import play
from tests.support.families import Qwen3, save_tokenizer
from tests.support.token_engine import Says, TokenEngine
from tests.training.hostile import bash
from tests.training.trained import Lines

pytestmark = pytest.mark.opencode

_CHECK = """
import sys
from openenv.core.harness.training import TrainingTrace
trace = TrainingTrace.model_validate_json(sys.stdin.read(), strict=True)
assert [t.node_id for t in trace.from_entries(trace.to_trace_entries()).turns] == [t.node_id for t in trace.turns]
print(len(trace.turns))
"""


async def trained(engine: Engine, directory: Path) -> tuple[RolloutResult, TokenEngine]:
    """A rollout of three turns, asked token by token."""
    family = Qwen3(thinks=True)
    lines = [
        Says(family.answer("First.", bash(family, "echo one > one"), reasoning="Let me look.")),
        Says(family.answer("Ünd 😀", bash(family, "printf '<tool_call>two'"), reasoning="Once more.")),
    ]
    tokenizer = save_tokenizer(directory)
    tokens = TokenEngine(tokenizer, family, Lines(family, lines, {}))
    async with tokens.serving() as url:
        spec = RolloutSpec(
            base_url=url,
            model="org/main-model",
            instruction="do it",
            verify=["test -e workdir/one"],
            token_ids=True,
            tokenizer=str(tokenizer),
            renderer="qwen3",
        )
        return await engine.rollout(spec, resolve_endpoint(spec)), tokens


async def test_a_training_trace_is_what_the_engine_saw_and_sampled(
    engine: Engine, tmp_path: Path, newest_python: Path
) -> None:
    result, tokens = await trained(engine, tmp_path)
    assert (result.reward, result.error, result.training_trace_reason) == (1.0, None, "")
    assert result.training_trace is not None
    turns = result.training_trace.turns
    assert [(turn.prompt_token_ids, turn.completion_token_ids) for turn in turns] == [
        (call.prompt, call.completion) for call in tokens.calls
    ]
    assert [turn.per_token_logps for turn in turns] == [call.logprobs for call in tokens.calls]
    for turn in turns:
        assert turn.loss_mask == [0] * len(turn.prompt_token_ids) + [1] * len(turn.completion_token_ids)
        assert (turn.metadata["role"], turn.metadata["program"]) == ("main", False)
        assert turn.request["model"] == "org/main-model"
    assert [turn.metadata["parent"] for turn in turns] == [None, *(turn.node_id for turn in turns[:-1])]
    assert [turn.response["finish_reason"] for turn in turns] == ["tool_calls", "tool_calls", "stop"]
    assert [turn.completion_token_ids for turn in result.proxy_turns] == [call.completion for call in tokens.calls]
    assert [turn.per_token_logps for turn in result.proxy_turns] == [call.logprobs for call in tokens.calls]
    again = RolloutResult.model_validate_json(result.model_dump_json())
    assert again == result
    text = json.dumps(json.loads(result.model_dump_json())["training_trace"])
    checked = subprocess.run(
        [str(newest_python), "-c", _CHECK], input=text, capture_output=True, text=True, check=False, timeout=120
    )
    assert (checked.returncode, checked.stdout) == (0, "3\n"), checked.stderr


async def test_without_token_ids_there_is_no_training_trace_and_a_reason(engine: Engine) -> None:
    result = await play(engine, "true")
    assert result.training_trace is None
    assert "token_ids" in result.training_trace_reason

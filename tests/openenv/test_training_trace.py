"""The training trace of a rollout: what the engine saw and sampled, in the form that OpenEnv 0.10 checks."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from opencode_openenv.model_calls import resolve_endpoint
from opencode_openenv.result import RolloutResult, flat_sequence
from opencode_openenv.rollout_engine import RolloutEngine
from opencode_openenv.settings import ServerConfig
from opencode_openenv.spec import RolloutSpec

from tests.openenv.playing import play
from tests.support.families import Qwen3, save_tokenizer
from tests.support.token_engine import Policy, Says, TokenEngine
from tests.training.hostile import bash
from tests.training.trained import Lines

pytestmark = pytest.mark.usefixtures("light_opencode")

_CHECK = """
import sys
from openenv.core.harness.training import TrainingTrace
trace = TrainingTrace.model_validate_json(sys.stdin.read(), strict=True)
assert [t.node_id for t in trace.from_entries(trace.to_trace_entries()).turns] == [t.node_id for t in trace.turns]
print(len(trace.turns))
"""


async def trained(
    engine: RolloutEngine, directory: Path, policy: Policy, verify: list[str]
) -> tuple[RolloutResult, TokenEngine]:
    """A rollout that is asked token by token."""
    tokenizer = save_tokenizer(directory)
    tokens = TokenEngine(tokenizer, Qwen3(thinks=True), policy)
    async with tokens.serving() as url:
        tokens_of: dict[str, Any] = {"token_ids": True, "tokenizer": str(tokenizer), "renderer": "qwen3"}
        spec = RolloutSpec(base_url=url, model="org/main-model", instruction="do it", verify=verify, **tokens_of)
        return await engine.rollout(spec, resolve_endpoint(spec)), tokens


async def test_a_training_trace_is_what_the_engine_saw_and_sampled(
    engine: RolloutEngine, tmp_path: Path, newest_python: Path
) -> None:
    family = Qwen3(thinks=True)
    lines = [
        Says(family.answer("First.", bash(family, "echo one > one"), reasoning="Let me look.")),
        Says(family.answer("Ünd 😀", bash(family, "printf '<tool_call>two'"), reasoning="Once more.")),
    ]
    result, tokens = await trained(engine, tmp_path, Lines(family, lines, {}), ["test -e workdir/one"])
    assert (result.reward, result.error, result.training_trace_reason) == (1.0, None, "")
    assert result.training_trace is not None
    turns = result.training_trace.turns
    asked = [(call.prompt, call.completion, call.logprobs) for call in tokens.calls]
    assert [(turn.prompt_token_ids, turn.completion_token_ids, turn.per_token_logps) for turn in turns] == asked
    for turn in turns:
        assert turn.loss_mask == [0] * len(turn.prompt_token_ids) + [1] * len(turn.completion_token_ids)
        assert (turn.metadata["role"], turn.metadata["program"]) == ("main", False)
        assert turn.request["model"] == "org/main-model"
    assert [turn.metadata["parent"] for turn in turns] == [None, *(turn.node_id for turn in turns[:-1])]
    assert [turn.response["finish_reason"] for turn in turns] == ["tool_calls", "tool_calls", "stop"]
    said = [(call.completion, call.logprobs) for call in tokens.calls]
    assert [(turn.completion_token_ids, turn.per_token_logps) for turn in result.proxy_turns] == said
    assert RolloutResult.model_validate_json(result.model_dump_json()) == result
    text = json.dumps(json.loads(result.model_dump_json())["training_trace"])
    checked = subprocess.run(
        [str(newest_python), "-c", _CHECK], input=text, capture_output=True, text=True, check=False, timeout=600
    )
    assert (checked.returncode, checked.stdout) == (0, "3\n"), checked.stderr


@pytest.mark.parametrize("trains", [False, True])
async def test_sub_calls_are_turns_of_their_own_role_and_train_where_the_server_says_so(
    tmp_path: Path, trains: bool
) -> None:
    family = Qwen3(thinks=True)
    asked = family.call("llm_subcall", {"prompt": "Which number is it?", "files": []})
    lines = Lines(family, [Says(family.answer("First.", asked, reasoning="Let me ask."))], {})

    def policy(model: str, prompt: str, /) -> Says:
        # The agent's own prompts tell it of its tools.
        return lines(model, prompt) if "<tools>" in prompt else Says(family.answer("seven", reasoning="I guess."))

    config = ServerConfig(env_id="opencode-rlm", include_sub_llm_in_trajectory=trains)
    async with RolloutEngine(config.environment()).open() as engine:
        result, tokens = await trained(engine, tmp_path, policy, ["true"])
    assert (result.reward, result.error, result.training_trace_reason) == (1.0, None, "")
    assert result.training_trace is not None
    first, last, sub = result.training_trace.turns
    assert [turn.metadata["role"] for turn in (first, last, sub)] == ["main", "main", "sub"]
    assert (last.metadata["parent"], sub.metadata["parent"]) == (first.node_id, None)
    said = [(call.completion, call.logprobs) for call in tokens.calls]
    assert [(turn.completion_token_ids, turn.per_token_logps) for turn in (first, sub, last)] == said
    assert sub.loss_mask == [0] * len(sub.prompt_token_ids) + [int(trains)] * len(sub.completion_token_ids)
    assert last.loss_mask == [0] * len(last.prompt_token_ids) + [1] * len(last.completion_token_ids)
    assert [turn.role for turn in result.proxy_turns] == ["main", "sub", "main"]
    assert [turn.completion_token_ids for turn in result.proxy_turns] == [call.completion for call in tokens.calls]
    flat = flat_sequence(result)
    assert flat is not None
    assert flat.dropped_turns == 1


async def test_without_token_ids_there_is_no_training_trace_and_a_reason(engine: RolloutEngine) -> None:
    result = await play(engine, "true")
    assert result.training_trace is None
    assert "token_ids" in result.training_trace_reason

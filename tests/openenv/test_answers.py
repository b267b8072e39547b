"""Our client reads a result out of every shape in which a version of OpenEnv, or its old server, hands one over."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from opencode_openenv.client import read_result

OLD = {
    "task_id": "old",
    "sandbox_id": "box",
    "reward": 0.5,
    "agent_exit_code": 0,
    "wall_s": 31.2,
    "mode": "transparent_proxy",
    "agent_log_tail": "",
    "proxy_log_tail": "",
    "error": None,
    "setup_results": [{"cmd": "true", "exit_code": 0, "stdout": "", "stderr": "", "duration_s": 0.1}],
    "verify_results": [],
    "proxy_turns": [
        {
            "turn": 1,
            "finish_reason": "stop",
            "completion_tokens": ["done"],
            "completion_token_ids": [5],
            "per_token_logps": [-0.25],
            "latency_s": 1.5,
            "timestamp": 1.0,
            "upstream_status": 200,
            "upstream_error": None,
        }
    ],
    "files": {"/home/user/workdir/a": "b"},
    "files_extra": [],
}
"""An answer of OpenEnv's own server, which knows none of our further fields."""
TEXT = json.dumps(OLD)
ITEM = SimpleNamespace(text=TEXT)
SHAPES = {
    "a string": TEXT,
    "an object with objects": SimpleNamespace(content=[ITEM]),
    "an object with dicts": SimpleNamespace(content=[{"type": "text", "text": TEXT}]),
    "a dict with dicts": {"content": [{"type": "text", "text": TEXT}]},
    "a dict with objects": {"content": [ITEM]},
    "an object below result": SimpleNamespace(result=SimpleNamespace(content=[ITEM])),
    "a dict below the result of an object": SimpleNamespace(result={"content": [{"text": TEXT}]}),
    "a dict below result": {"result": {"content": [{"text": TEXT}]}, "error": None},
    "a string below result": {"result": TEXT},
    "the result itself": OLD,
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_result_is_read_out_of(shape: Any) -> None:
    result = read_result(shape)
    assert (result.task_id, result.reward, result.wall_s) == ("old", 0.5, 31.2)
    assert result.proxy_turns[0].completion_token_ids == [5]
    assert (result.training_trace, result.stop_condition) == (None, None)


@pytest.mark.parametrize("answer", [None, {}, {"content": []}, {"content": [{"image": "x"}]}, 7, SimpleNamespace()])
def test_an_answer_without_text_is_an_error_that_shows_it(answer: Any) -> None:
    with pytest.raises(ValueError, match="holds no text"):
        read_result(answer)


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"reward": "high"}'])
def test_a_text_that_is_no_result_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(ValueError, match="is not a RolloutResult"):
        read_result(text)

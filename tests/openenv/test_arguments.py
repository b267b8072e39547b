"""Wrong arguments are refused in the words of `run_rollout`, by our client and by the server."""

import re
from typing import Any

import pytest
from opencode_openenv import OpenCodeEnvClient
from opencode_openenv.model_calls import client_of, resolve_endpoint
from opencode_openenv.spec import RolloutSpec, read_arguments
from pydantic import ValidationError

TOLD: list[tuple[dict[str, Any], str]] = [
    ({"verify": "grep x y"}, 'verify must be a list of shell commands, such as ["true"]'),
    ({"setup": b"true"}, "setup must be a list of shell commands"),
    ({"verify": {"true"}}, "verify must be a list of shell commands"),
    ({"verify": ["true", 7]}, "verify[1] must be a text"),
    ({"verify": ["true", " "]}, "verify[1] is empty, and would always pass"),
    ({"setup": ["echo a\0b"]}, "setup[0] holds a NUL character"),
    ({"verify": ["echo a\0b"]}, "verify[0] holds a NUL character"),
    ({"verify": ["true"] * 65}, "verify must hold at most 64 commands"),
    ({"instruction": None}, "instruction is missing"),
    ({"instruction": ""}, "instruction must not be empty"),
    ({"instruction": [{"role": "user"}]}, "instruction must be a text"),
    ({"instruction": "a\ud800"}, "instruction holds a lone surrogate"),
    ({"task_id": "x" * 1001}, "task_id must have at most 1,000 characters"),
    ({"mode": "other"}, "mode must be one of 'transparent_proxy' or 'black_box'"),
    ({"agent_timeout_s": "soon"}, "agent_timeout_s must be a number"),
    ({"agent_timeout_s": 0}, "agent_timeout_s must be above 0"),
    ({"command_timeout_s": 10**6}, "command_timeout_s must be at most 86400"),
    ({"agent_timeout_s": float("nan")}, "agent_timeout_s must be a finite number"),
    ({"top_logprobs": -1}, "top_logprobs must be at least 0"),
    ({"max_tokens_cap": 1.5}, "max_tokens_cap must be a whole number"),
    ({"token_ids": "perhaps"}, "token_ids must be true or false"),
    ({"template": "--volume=/:/host"}, "template is not a name of a container image"),
    ({"verifiy": ["true"]}, "verifiy is not an argument of run_rollout; there are: .*did you mean 'verify'"),
    ({"tokenizer": "a/b"}, "tokenizer and renderer are for token_ids"),
]


def plain(text: str) -> str:
    """A pattern of a text in which only `.*` means something."""
    return ".*".join(map(re.escape, text.split(".*")))


@pytest.mark.parametrize(("wrong", "told"), TOLD, ids=[told for _, told in TOLD])
def test_what_is_wrong_is_said_without_a_library_s_words(wrong: dict[str, Any], told: str) -> None:
    call = {"instruction": "do it", "base_url": "http://127.0.0.1:9/v1", "api_key": "a-secret-key", **wrong}
    with pytest.raises(ValueError, match=plain(told)) as by_server:
        read_arguments(call)
    client = OpenCodeEnvClient("http://127.0.0.1:9")
    with pytest.raises(ValueError, match=plain(told)) as by_client:
        client.run_rollout(**call)
    for refusal in (by_server, by_client):
        assert not isinstance(refusal.value, ValidationError)
        said = str(refusal.value)
        assert said.startswith("invalid arguments: ")
        assert not any(word in said for word in ("pydantic", "Input", "a-secret-key", "http://", "RolloutSpec"))


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"verify must be.*; agent_timeout_s must be.*; colour is not an argument"):
        read_arguments({"instruction": "do it", "verify": "true", "agent_timeout_s": -1, "colour": "red"})


def test_an_argument_of_none_stands_for_its_default() -> None:
    given = dict.fromkeys(RolloutSpec.model_fields) | {"instruction": "do it"}
    assert read_arguments(given) == RolloutSpec(instruction="do it")


@pytest.mark.parametrize("renderer", ["no-such-renderer", "custom"])
def test_a_renderer_that_cannot_be_used_is_told_likewise(renderer: str) -> None:
    given = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "token_ids": True, "renderer": renderer}
    spec = RolloutSpec(instruction="do it", **given)
    with pytest.raises(ValueError, match=f"renderer '{renderer}' cannot be used; ") as refusal:
        client_of(spec, resolve_endpoint(spec), "")
    assert not isinstance(refusal.value, ValidationError)


def pydantic_says(arguments: dict[str, Any]) -> list[str]:
    """Its own messages; none where the arguments are right, and not those that are ours."""
    try:
        RolloutSpec.model_validate(arguments)
    except ValidationError as error:
        return [item["msg"] for item in error.errors() if item["type"] != "value_error"]
    return []


def test_of_every_argument_and_kind_of_value_nothing_is_said_in_a_library_s_words() -> None:
    odd: list[Any] = [[], {}, "", "x", "9" * 5000, -1, 1e400, 10**400, True, b"\xff", [None], ["\ud800"], object()]
    calls = [{"instruction": "do it", name: value} for name in RolloutSpec.model_fields for value in odd]
    wrong = {number: said for number, call in enumerate(calls) if (said := pydantic_says(call))}
    assert len(wrong) > len(RolloutSpec.model_fields)
    for number, said in wrong.items():
        with pytest.raises(ValueError, match=r"^invalid arguments: ") as refusal:
            read_arguments(calls[number])
        assert not any(words in str(refusal.value) for words in said)

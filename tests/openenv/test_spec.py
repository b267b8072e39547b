"""The arguments of a call: their defaults, their bounds, and the endpoint that they name."""

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from opencode_openenv.model_calls import ModelEndpoint, resolve_endpoint
from opencode_openenv.spec import RolloutSpec
from pydantic import ValidationError

OWN = {"VLLM_URL": "http://vllm:8000/v1", "VLLM_API_KEY": "own-vllm", "OPENAI_API_KEY": "own-openai"}


def spec(**given: Any) -> RolloutSpec:
    """A spec with an instruction."""
    return RolloutSpec(instruction="do it", **given)


def test_defaults_are_those_of_the_old_server() -> None:
    dumped = spec().model_dump(
        exclude={"instruction", "token_ids", "tokenizer", "temperature", "renderer", "reward_min", "reward_max"}
    )
    assert dumped == {
        **dict.fromkeys(("endpoint", "base_url", "api_key", "model", "task_id", "template"), ""),
        "setup": [],
        "verify": [],
        "mode": "transparent_proxy",
        "disable_thinking": None,
        "max_tokens_cap": 4096,
        "top_logprobs": 5,
        "agent_timeout_s": 600.0,
        "command_timeout_s": 120.0,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "other"},
        *({"setup": given} for given in ("true", b"true", {"true"}, {"true": "false"}, 7, [7], [["true"]])),
        {"verify": ["x" * 100_001]},
        *({"template": name} for name in ("--volume=/:/host", "-v", "dir:/srv/image", "docker://a/b", "a b", "a\n")),
        {"reward_min": 2.0},
        {"reward_max": float("inf")},
        {"renderer": "qwen3"},
        {"temperature": 0},
        {"token_ids": True, "mode": "black_box"},
        {"no_such_argument": 1},
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RolloutSpec.model_validate({"instruction": "do it", **wrong})


@pytest.mark.parametrize(
    "image", ["python:3.11-slim", "localhost/made:1", "host:5000/a/b:tag", "docker.io/a/b@sha256:0123", "a-template_id"]
)
def test_images_are_names_as_registries_have_them(image: str) -> None:
    assert spec(template=image).template == image


def test_commands_stay_in_the_order_in_which_any_list_of_them_has_them() -> None:
    expected = ["first", "second"]
    for given in (expected, tuple(expected), iter(expected), dict(enumerate(expected)).values(), deque(expected)):
        assert spec(setup=given).setup == expected


def test_a_bound_of_the_reward_that_is_not_given_is_the_usual_one_or_none_at_all() -> None:
    assert spec().reward_bounds is None
    assert spec(reward_min=-3).reward_bounds == (-3, 1)
    assert spec(reward_max=3).reward_bounds == (0, 3)


def test_a_rollouts_longest_time_counts_its_commands() -> None:
    short = spec(agent_timeout_s=10.0).longest_seconds
    longer = spec(agent_timeout_s=10.0, setup=["a"], verify=["b", "c"], command_timeout_s=100.0)
    assert longer.longest_seconds >= short + 300.0
    assert spec(agent_timeout_s=1000.0).longest_seconds >= short + 990.0


def test_explicit_goes_before_the_environment_and_that_before_the_catalog() -> None:
    url, own_model = "http://vllm:8000/v1", {**OWN, "VLLM_MODEL": "own/model"}
    own = ModelEndpoint(url, "own-vllm", "Qwen/Qwen3.5-4B", disable_thinking=True)
    assert resolve_endpoint(spec(endpoint="vllm"), OWN) == own
    assert resolve_endpoint(spec(endpoint="vllm"), own_model) == replace(own, model="own/model")
    assert resolve_endpoint(spec(endpoint="vllm"), {"VLLM_URL": url}) == replace(own, api_key="intercepted")
    mine = spec(endpoint="vllm", base_url="http://mine/v1/", api_key="k", model="m", disable_thinking=False)
    found = ModelEndpoint("http://mine/v1", "k", "m", disable_thinking=False)
    assert resolve_endpoint(mine, OWN) == found
    bare = resolve_endpoint(spec(base_url="http://mine/v1", model="m"), OWN)
    assert bare == replace(found, api_key="intercepted")
    openai = ModelEndpoint("https://api.openai.com/v1", "own-openai", "gpt-4o-mini", disable_thinking=False)
    assert resolve_endpoint(spec(endpoint="openai"), OWN) == openai


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        *((f"http://vllm:8000{path}", "http://vllm:8000/v1") for path in ("", "/", "/v1", "/v1/")),
        ("http://proxy/team/vllm/", "http://proxy/team/vllm/v1"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_an_address_of_vllm_needs_no_v1(url: str, asked: str) -> None:
    own = resolve_endpoint(spec(endpoint="vllm"), {**OWN, "VLLM_URL": url})
    assert (own.base_url, own.api_key) == (asked, "own-vllm")
    named = resolve_endpoint(spec(endpoint="vllm", base_url=url), {**OWN, "VLLM_URL": asked})
    assert (named.base_url, named.api_key) == (asked, "own-vllm")


def test_other_endpoints_are_asked_where_their_users_say() -> None:
    for url, asked in (
        ("http://proxy", "http://proxy/v1"),
        ("http://proxy/v1beta/openai/", "http://proxy/v1beta/openai"),
    ):
        assert resolve_endpoint(spec(endpoint="openai"), {**OWN, "OPENAI_BASE_URL": url}).base_url == asked
    assert resolve_endpoint(spec(base_url="http://mine", model="m"), OWN).base_url == "http://mine"
    with pytest.raises(ValueError, match="not an http"):
        resolve_endpoint(spec(endpoint="vllm"), {"VLLM_URL": "vllm:8000"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "base_url"),
        ({"base_url": "http://mine/v1"}, "model"),
        ({"endpoint": "vllm"}, "VLLM_URL"),
        ({"endpoint": "openai"}, "OPENAI_API_KEY"),
        ({"endpoint": "hf_router"}, "HF_ROUTER_API_KEY"),
        ({"base_url": "file:///etc/passwd", "model": "m"}, "not an http"),
        *(
            ({"base_url": f"http://{bad}", "model": "m"}, "not an http")
            for bad in ("", "mine:70000/v1", "mine:0", "[::1")
        ),
        ({"endpoint": "vllm", "base_url": "http://[::1"}, "not an http"),
        ({"base_url": "http://me:a-secret@mine/v1", "model": "m"}, "given as api_key"),
        ({"base_url": "http://mine/v1?key=a-secret", "model": "m"}, "given as api_key"),
        ({"base_url": "http://mine", "model": "m", "api_key": "a\r\nX: y"}, "line break"),
        ({"base_url": "http://mine", "model": "m", "api_key": "schlüssel"}, "no HTTP header"),
    ],
)
def test_an_endpoint_that_cannot_be_asked_is_an_error_that_says_what_is_missing(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told) as refusal:
        resolve_endpoint(spec(**given), {})
    assert "a-secret" not in str(refusal.value)


def test_the_servers_own_key_is_not_sent_to_an_endpoint_that_a_caller_names() -> None:
    with pytest.raises(ValueError, match="not sent to another base_url"):
        resolve_endpoint(spec(endpoint="openai", base_url="http://thief/v1"), OWN)
    assert resolve_endpoint(spec(endpoint="vllm", base_url="http://thief/v1"), OWN).api_key == "intercepted"
    same = resolve_endpoint(spec(endpoint="openai", base_url="https://api.openai.com/v1/"), OWN)
    assert same.api_key == "own-openai"


def test_a_key_is_not_shown() -> None:
    given = spec(api_key="secret-key", base_url="http://mine", model="m")
    assert "secret-key" not in repr(given)
    assert "secret-key" not in repr(resolve_endpoint(given, {}))

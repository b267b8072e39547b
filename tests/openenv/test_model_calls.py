"""What every model call of a rollout is asked with."""

from typing import Any

from opencode_openenv.model_calls import resolve_endpoint, sampling_of
from opencode_openenv.spec import RolloutSpec


def asked(**given: Any) -> dict[str, Any]:
    """What is set over the agent's own request."""
    spec = RolloutSpec(instruction="do it", base_url="http://127.0.0.1:9/v1", model="m", **given)
    found: dict[str, Any] = sampling_of(spec, resolve_endpoint(spec)).model_dump(exclude_none=True)
    return found


def test_without_token_ids_the_agents_own_sampling_stands() -> None:
    assert asked() == {"max_tokens": 4096, "logprobs": True, "top_logprobs": 5}
    assert asked(temperature=0.5, max_tokens_cap=0, top_logprobs=0) == {"temperature": 0.5, "logprobs": True}


def test_with_token_ids_nothing_narrows_the_distribution_whatever_the_agent_asks() -> None:
    whole = {
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        **dict.fromkeys(("frequency_penalty", "presence_penalty"), 0.0),
    }
    assert asked(token_ids=True) == {**whole, "temperature": 1.0, "max_tokens": 4096}
    assert asked(token_ids=True, temperature=0.7)["temperature"] == 0.7

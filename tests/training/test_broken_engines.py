"""An engine's answer is trained on whole and with its evidence, or it is a failed call."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rlm.role_server import role_server
from tests.support.families import Qwen3
from tests.support.token_engine import Choice, Says, TokenEngine
from tests.training.trained import assert_one_exact_branch, train, train_client

FAMILY = Qwen3(thinks=False)


def no_logprobs(choice: Choice) -> None:
    del choice["logprobs"]


def no_content(choice: Choice) -> None:
    choice["logprobs"] = {"content": None}


def fewer_logprobs(choice: Choice) -> None:
    choice["logprobs"]["content"].pop()


def fewer_ids(choice: Choice) -> None:
    choice["token_ids"].pop()


def other_ids(choice: Choice) -> None:
    choice["token_ids"][0] += 1


def no_number(choice: Choice) -> None:
    choice["logprobs"]["content"][0]["logprob"] = math.nan


def no_evidence(choice: Choice) -> None:
    choice["logprobs"]["content"][0]["logprob"] = -9999.0


def nothing(choice: Choice) -> None:
    choice.update(token_ids=[], logprobs={"content": []})


def aborted(choice: Choice) -> None:
    choice["finish_reason"] = "abort"


SPOILED: list[tuple[Callable[[Choice], None], str]] = [
    (no_logprobs, "cannot be trained on"),
    (no_content, "cannot be trained on"),
    (fewer_logprobs, "does not match logprob count"),
    (fewer_ids, "does not match logprob count"),
    (other_ids, "must be 'token_id:"),
    (no_number, "must be finite"),
    (no_evidence, "sampling evidence"),
    (nothing, "without a single token"),
    (aborted, "broke its answer off"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
async def test_an_answer_without_its_evidence_is_an_error_that_may_pass(
    tokenizer: Path, spoil: Callable[[Choice], None], message: str
) -> None:
    engine = TokenEngine(tokenizer, FAMILY, lambda model, prompt: Says("Sampled.", spoil=spoil))
    async with engine.serving() as url:
        client = train_client(url, FAMILY, tokenizer)
        async with role_server(client=client) as server, server.rollout() as rollout:
            answer = await rollout.ask("a question")
    assert answer.status in (502, 503)
    assert message in answer.body
    assert rollout.main.nodes == []
    assert [call.error.type for call in rollout.main.calls if call.error] == ["ProviderError"]


@pytest.mark.usefixtures("light_agent")
async def test_an_answer_that_the_engine_broke_off_is_sampled_again(tokenizer: Path) -> None:
    lines = [
        Says(FAMILY.call("bash", {"command": "echo one", "description": "d"}), spoil=aborted),
        Says(FAMILY.call("bash", {"command": "echo two", "description": "d"})),
        Says("Done."),
    ]
    played = await train(tokenizer, FAMILY, lines)
    assert_one_exact_branch(played)
    assert [result.strip() for result in played.results] == ["two"]
    assert [call.error is None for call in played.main.calls] == [False, True, True]
    assert played.engine.asked == 3

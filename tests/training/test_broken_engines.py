"""An engine's answer is trained on whole and with its evidence, or it is a failed call."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.rlm.role_server import role_server
from tests.support.families import Qwen3
from tests.support.served_app import served
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


FORMLESS: list[tuple[Callable[[Choice], None], str]] = [
    (no_logprobs, "cannot be trained on"),
    (no_content, "cannot be trained on"),
    (fewer_logprobs, "does not match logprob count"),
    (fewer_ids, "does not match logprob count"),
    (other_ids, "must be 'token_id:"),
]
SPOILED: list[tuple[Callable[[Choice], None], str]] = [
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


@pytest.mark.parametrize(("spoil", "message"), FORMLESS, ids=[spoil.__name__ for spoil, _ in FORMLESS])
async def test_an_engine_whose_answers_never_have_their_evidence_is_not_asked_again(
    tokenizer: Path, spoil: Callable[[Choice], None], message: str
) -> None:
    lines = [Says("Sampled.", spoil=spoil), Says("Fine."), Says("Spoiled.", spoil=spoil)]
    engine = TokenEngine(tokenizer, FAMILY, lambda model, prompt: lines[engine.asked - 1])
    async with engine.serving() as url:
        client = train_client(url, FAMILY, tokenizer)
        async with role_server(client=client) as server, server.rollout() as rollout:
            answers = [await rollout.ask(f"question {number}") for number in range(3)]
    # OpenCode asks again at a 502, and at a 400 that says so; behind a sound answer it may have been a moment's.
    assert [answer.status for answer in answers] == [400, 200, 502]
    assert message not in answers[0].body
    failed = [call.error for call in rollout.main.calls if call.error is not None]
    assert [(message in error.message, error.status_code) for error in failed] == [(True, 502), (True, 502)]


@pytest.mark.usefixtures("light_agent")
async def test_an_engine_that_names_tokens_by_their_ids_trains(tokenizer: Path) -> None:
    call = FAMILY.call("bash", {"command": "echo one", "description": "d"})
    played = await train(tokenizer, FAMILY, [Says(call), Says("Done.")], token_ids=True)
    assert_one_exact_branch(played)
    assert [result.strip() for result in played.results] == ["one"]


async def test_an_engine_without_the_route_is_told_of_the_flag_that_opens_it(tokenizer: Path) -> None:
    async def forbidden(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "Forbidden", "code": 403}}, status=403)

    app = web.Application()
    app.router.add_post("/inference/v1/generate", forbidden)
    async with served(app) as url:
        client = train_client(f"{url}/v1", FAMILY, tokenizer)
        async with role_server(client=client) as server, server.rollout() as rollout:
            answer = await rollout.ask("a question")
    assert answer.status == 403
    assert "--enable-scale-out" in answer.text


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

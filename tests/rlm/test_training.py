"""Under a training client sub calls carry token ids and logprobs, as main calls do, each on its own trace."""

from pathlib import Path

from tests.rlm.role_server import SUB, role_server
from tests.support.families import Qwen3
from tests.support.token_engine import Says, TokenEngine
from tests.training.trained import train_client

FAMILY = Qwen3(thinks=False)


async def test_sub_branches_hold_exactly_the_tokens_that_the_engine_saw(tokenizer: Path) -> None:
    engine = TokenEngine(tokenizer, FAMILY, lambda model, prompt: Says("Sampled."))
    async with engine.serving() as url:
        client = train_client(url, FAMILY, tokenizer)
        async with role_server(client=client) as server, server.rollout() as rollout:
            assert (await rollout.ask("main question")).status == 200
            for prompt in ("first", "second"):
                answer = await rollout.ask(prompt, SUB, stream=True)
                assert (answer.status, "[DONE]" in answer.body) == (200, True)
    assert (rollout.main.num_branches, rollout.sub.num_branches) == (1, 2)
    branches = [*rollout.main.branches, *rollout.sub.branches]
    for branch, call in zip(branches, engine.calls, strict=True):
        assert list(branch.token_ids) == call.sequence
        assert list(branch.sampled_mask) == [False] * len(call.prompt) + [True] * len(call.completion)
        assert list(branch.logprobs)[len(call.prompt) :] == call.logprobs
    sampled = [len(call.completion) for call in engine.calls]
    tokens = [rollout.main.metrics[f"{seat}_completion_tokens"] for seat in ("main", "sub_llm")]
    assert tokens == [sampled[0], sum(sampled[1:])]

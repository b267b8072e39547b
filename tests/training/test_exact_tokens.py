"""With a training client every token of a trace is what the engine saw and sampled, once, in one branch.

`make test-whole` plays the conversations of every family of models with thinking on and off.
"""

from pathlib import Path

import pytest
from opencode_env.cli_agent.model_failure import overflowed

from tests.support.families import GLM, Family, Qwen3
from tests.support.seats import SUB_MODEL
from tests.support.sizes import size
from tests.support.sub_sessions import TASK
from tests.support.token_engine import Says
from tests.training.hostile import bash, hostile
from tests.training.trained import assert_exact, assert_one_exact_branch, tokens, train

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

FAMILIES: dict[str, Family] = {
    "qwen3": Qwen3(thinks=True),
    "qwen3 without thinking": Qwen3(thinks=False),
    "glm": GLM(thinks=True),
    "glm without thinking": GLM(thinks=False),
}
PLAYED = size(["qwen3", "glm without thinking"], [*FAMILIES])
by_family = pytest.mark.parametrize("family", [FAMILIES[name] for name in PLAYED], ids=PLAYED)


@by_family
async def test_a_plain_conversation_is_one_branch_of_what_was_sampled(tokenizer: Path, family: Family) -> None:
    lines = [
        Says(family.answer("First.", bash(family, "echo one"), reasoning="Let me look.")),
        Says(family.answer("", bash(family, "echo two"), bash(family, "echo three"), reasoning="And on.")),
        Says(family.answer("Ünd 😀", bash(family, "printf '<tool_call>four'"), reasoning="Once more.")),
        Says(family.answer("Done, all of it.", reasoning="That was it.")),
    ]
    played = await train(tokenizer, family, lines)
    assert_one_exact_branch(played)
    assert tokens(played) == 1.0
    assert [result.strip() for result in played.results] == ["one", "two", "three", "<tool_call>four"]
    for call in played.engine.calls:
        text = played.engine.text(call.completion)
        assert played.engine.tokenizer.encode(text, add_special_tokens=False) != call.completion


def broken(family: Family) -> list[Says]:
    """Calls that a parser trips over."""
    deep = '{"command": ' + "[" * 3000 + "}"
    texts = [
        '<tool_call>\n{"name": "bash", "arguments": {"command": ' + "9" * 5000 + "}}\n</tool_call>",
        f'<tool_call>{{"name": "bash", "arguments": {deep}}}</tool_call>',
        '<tool_call>{"name": "ba\\ud83dsh", "arguments": "\\ud83d"}</tool_call>',
        "<tool_call>\n" * 3,
    ]
    return [Says(family.answer("", text, reasoning="Hm.")) for text in texts]


@by_family
async def test_a_hostile_conversation_is_one_branch_and_no_call_is_too_broken_for_the_agent_to_hear_of_it(
    tokenizer: Path, family: Family
) -> None:
    odd, worse = hostile(family), broken(family)
    played = await train(tokenizer, family, [*odd, *worse])
    assert_one_exact_branch(played)
    assert tokens(played) == 1.0
    assert [call.error for call in played.main.calls] == [None] * (len(odd) + len(worse) + 1)
    assert len(played.results) >= len(odd) + len(worse)
    heard = played.results[-len(worse) :]
    assert all("nvalid" in result or "unavailable" in result for result in heard), heard


@pytest.mark.parametrize("family", [Qwen3(True, "all"), GLM(True, "all")], ids=["qwen3", "glm"])
async def test_answers_that_were_cut_off_and_thoughts_that_were_not_closed_stay_in_one_branch_when_the_user_goes_on(
    tokenizer: Path, family: Family
) -> None:
    thought = family.answer("", reasoning="Let me see").partition("see")[0]
    cut = family.answer("", bash(family, "echo one"), reasoning="Hm.").partition("echo")[0]
    segments = [
        [Says(thought, stops=False)],
        [Says(family.answer("It is", reasoning="Hm."), stops=False)],
        [Says(cut, stops=False), Says(family.answer("", bash(family, "echo two"), reasoning="Hm."))],
        [Says(family.answer())],
        [Says(family.answer("", bash(family, "echo three"), reasoning="Hm.")), Says(thought)],
        [Says(thought)],
        [Says(family.answer("At last.", reasoning="Hm."))],
    ]
    played = await train(tokenizer, family, *segments)
    assert_one_exact_branch(played)
    assert len(played.engine.calls) == 10
    assert [result.strip() for result in played.results[1:]] == ["two", "three"]


async def test_an_overflow_ends_the_rollout_and_what_came_before_is_exact(tokenizer: Path) -> None:
    family = Qwen3(thinks=True)
    lines = [Says(family.answer("", bash(family, "seq 1 4000"), reasoning="Hm."))] * 50
    played = await train(tokenizer, family, lines, window=100_000)
    assert_one_exact_branch(played)
    assert 1 < len(played.engine.calls) < 50
    assert played.main.info["agent"]["outcome"] == "context_window"
    assert overflowed(played.main.calls)


async def test_a_request_that_the_engine_refuses_for_its_length_is_an_overflow_too(tokenizer: Path) -> None:
    family = Qwen3(thinks=True)
    too_long = "This model's maximum context length is 4096 tokens. Please reduce the length of the input."
    lines = [Says(family.answer("", bash(family, "echo one"), reasoning="Hm.")), Says(refuses=too_long)]
    played = await train(tokenizer, family, lines)
    assert_one_exact_branch(played)
    assert played.main.info["agent"]["outcome"] == "context_window"


@pytest.mark.parametrize("family", [Qwen3(True, "all"), GLM(False)], ids=["qwen3", "glm without thinking"])
async def test_sub_agents_have_a_branch_each_of_what_was_sampled_also_when_they_are_resumed(
    tokenizer: Path, family: Family
) -> None:
    def agent(prompt: str, **further: str) -> str:
        asked = {"description": "a job", "prompt": prompt, "subagent_type": "general"}
        return family.call("task", {**asked, **further})

    jobs = {name: [*hostile(family)[:6], Says(family.answer(f"{name} done."))] for name in ("job one", "job two")}
    jobs["job two"] += [*hostile(family)[:2], Says(family.answer("job two went on."))]
    once = family.call("llm_subcall", {"prompt": "job three"})
    main = [
        Says(family.answer("", agent("job one"), agent("job two"), reasoning="Hm.")),
        *hostile(family)[:3],
        Says(family.answer("", agent("job two, go on", task_id=TASK.format(1)), reasoning="Hm.")),
        Says(family.answer("", once, reasoning="Hm.")),
    ]
    played = await train(tokenizer, family, main, sub={**jobs, "job three": [Says(family.answer("Three."))]})
    assert_one_exact_branch(played)
    assert played.main.metrics["sub_llm_history_forks"] == 0
    assert played.sub.num_branches == 3
    lengths: list[int] = []
    for branch in played.sub.branches:
        ids = list(branch.token_ids)
        chain = [call for call in played.engine.of(SUB_MODEL) if ids[: len(call.sequence)] == call.sequence]
        lengths.append(len(chain))
        assert_exact(played.sub, branch, chain)
    assert sorted(lengths) == [1, 7, 10]
    assert "job one done." in played.results[0]
    assert any("job two went on." in result for result in played.results)

"""With a training client every token of a trace is what the engine saw and sampled, once, in one branch.

One conversation of OpenCode holds whatever a model may sample, for two families of models: the main agent's and that of
its sub-agents. The light program plays what each family adds to that. `make test-whole` plays OpenCode for every
family, with thinking on and off.
"""

import base64
from pathlib import Path

import pytest
from opencode_env.cli_agent.classification import overflowed
from opencode_env.cli_agent.outcomes import NO_ANSWER

from tests.support.families import GLM, Family, Qwen3
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.sizes import size
from tests.support.sub_sessions import TASK
from tests.support.token_engine import Says
from tests.training.hostile import PIXEL, bash, hostile
from tests.training.trained import Trained, assert_exact, assert_one_exact_branch, tokens, train

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

SPEAKING: dict[str, Family] = {"qwen3": Qwen3(True, "all"), "glm": GLM(True, "all")}
"""Families whose thoughts stay when the user goes on."""
PAIRS: dict[str, tuple[Family, Family]] = {
    "qwen3, glm": (SPEAKING["qwen3"], SPEAKING["glm"]),
    "glm, qwen3": (SPEAKING["glm"], SPEAKING["qwen3"]),
    "qwen3, glm without thinking": (SPEAKING["qwen3"], GLM(False)),
    "glm without thinking, qwen3 without thinking": (GLM(False), Qwen3(False)),
}
"""Families of the main model and of the sub model."""
PLAYED = size([*PAIRS][:1], [*PAIRS])


def plain(family: Family) -> list[Says]:
    """What every agent sends back as it was sampled."""
    return [
        Says(family.answer("First.", bash(family, "echo one"), reasoning="Let me look.")),
        Says(family.answer("", bash(family, "echo two"), bash(family, "echo three"), reasoning="And on.")),
        Says(family.answer("Ünd 😀", bash(family, "printf '<tool_call>four'"), reasoning="Once more.")),
    ]


def assert_plain(played: Trained) -> None:
    """What was said of `plain` was done, and was not sampled as the tokenizer would spell it."""
    assert [result.strip() for result in played.results[:4]] == ["one", "two", "three", "<tool_call>four"]
    for call in played.engine.calls[:3]:
        text = played.engine.text(call.completion)
        assert played.engine.tokenizer.encode(text, add_special_tokens=False) != call.completion


@pytest.mark.usefixtures("light_agent")
@pytest.mark.parametrize("family", [Qwen3(False), GLM(True)], ids=["qwen3 without thinking", "glm"])
async def test_a_plain_conversation_is_one_branch_of_what_was_sampled(tokenizer: Path, family: Family) -> None:
    played = await train(tokenizer, family, plain(family))
    assert_one_exact_branch(played)
    assert tokens(played) == 1.0
    assert len(played.results) == 4
    assert_plain(played)


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


def agent(family: Family, prompt: str, **further: str) -> str:
    """A call of a sub-agent."""
    asked = {"description": "a job", "prompt": prompt, "subagent_type": "general"}
    return family.call("task", {**asked, **further})


@pytest.mark.parametrize(("family", "other"), [PAIRS[name] for name in PLAYED], ids=PLAYED)
async def test_a_hostile_conversation_is_a_branch_of_each_agent_and_no_call_is_too_broken_for_them_to_hear_of_it(
    tokenizer: Path, family: Family, other: Family
) -> None:
    """The user goes on after a thought that was not closed, and so the main agent with a sub-agent after each end."""
    odd, worse, theirs = hostile(family), broken(family), hostile(other)
    half = len(theirs) // 2
    talk = spoken(other) if other.thinks else [[Says(other.answer("Four."))]]
    jobs = {
        "job one": [*theirs[:half], Says(other.answer("job one done."))],
        "job two": [*theirs[half:], Says(other.answer("job two done."))],
        "job three": [Says(other.answer("Three."))],
        "job four": [says for segment in talk for says in segment],
    }
    jobs["job two"] += [*theirs[:2], *broken(other), Says(other.answer("job two went on."))]
    make = f"echo {base64.b64encode(PIXEL).decode()} | base64 -d > /app/pixel.png"
    further = [
        [agent(family, job) for job in ("job one", "job two", "job four")],
        [agent(family, "job two, go on", task_id=TASK.format(1))],
        *([agent(family, "job four, go on", task_id=TASK.format(2))] for _ in talk[1:]),
        [family.call("llm_subcall", {"prompt": "job three"})],
        [bash(family, make)],
        [family.call("read", {"filePath": "/app/pixel.png"})],
    ]
    main = [
        [*plain(family), *(spoken(family)[0] if family.thinks else [Says(family.answer("So far."))])],
        [*(Says(family.answer("", *calls, reasoning="Hm.")) for calls in further), *odd, *worse],
    ]
    played = await train(tokenizer, family, *main, sub=jobs, sub_family=other)
    assert_one_exact_branch(played)
    assert tokens(played) == 1.0
    assert [call.error for call in played.main.calls] == [None] * (sum(map(len, main)) + 1)
    assert_plain(played)
    assert "job one done." in played.results[4]
    assert any("job two went on." in result for result in played.results)
    assert_heard(played.results[-len(worse) :])
    assert "does not support image input" in played.engine.text(played.engine.of(MAIN_MODEL)[-1].prompt)

    assert played.main.metrics["sub_llm_history_forks"] == 0
    lines = {len(said): said for said in jobs.values()}
    assert played.sub.num_branches == len(lines) == 4
    for branch in played.sub.branches:
        ids = list(branch.token_ids)
        chain = [call for call in played.engine.of(SUB_MODEL) if ids[: len(call.sequence)] == call.sequence]
        assert_exact(played.sub, branch, chain)
        assert lines.pop(len(chain))
        if len(chain) == len(jobs["job two"]):
            results = [str(node.message.content) for node in branch.nodes if node.message.role == "tool"]
            assert_heard(results[-len(worse) :])


def assert_heard(results: list[str]) -> None:
    """An agent was told that calls could not run."""
    assert all("nvalid" in result or "unavailable" in result for result in results), results


def spoken(family: Family) -> list[list[Says]]:
    """Segments that end with an answer that was cut off, a thought that was not closed, or nothing."""
    thought = family.answer("", reasoning="Let me see").partition("see")[0]
    cut = family.answer("", bash(family, "echo one"), reasoning="Hm.").partition("echo")[0]
    return [
        [Says(thought, stops=False)],
        [Says(family.answer("It is", reasoning="Hm."), stops=False)],
        [
            Says(cut, stops=False),
            Says(family.answer("", bash(family, "echo two"), reasoning="Hm.")),
            Says(family.answer()),
        ],
        [Says(family.answer("", bash(family, "echo three"), reasoning="Hm.")), Says(thought)],
        [Says(thought)],
        [Says(family.answer("At last.", reasoning="Hm."))],
    ]


@pytest.mark.usefixtures("light_agent")
@pytest.mark.parametrize("family", SPEAKING.values(), ids=SPEAKING)
async def test_answers_that_were_cut_off_and_thoughts_that_were_not_closed_stay_in_one_branch_when_the_user_goes_on(
    tokenizer: Path, family: Family
) -> None:
    played = await train(tokenizer, family, *spoken(family))
    assert_one_exact_branch(played)
    assert len(played.engine.calls) == 9
    assert [result.strip() for result in played.results[1:]] == ["two", "three"]


@pytest.mark.usefixtures("light_agent")
async def test_an_overflow_ends_the_rollout_and_what_came_before_is_exact(tokenizer: Path) -> None:
    family = Qwen3(thinks=True)
    lines = [Says(family.answer("", bash(family, "seq 1 4000"), reasoning="Hm."))] * 50
    played = await train(tokenizer, family, lines, window=50_000)
    assert_one_exact_branch(played)
    assert 1 < len(played.engine.calls) < 50
    assert played.main.info["agent"]["outcome"] == "context_window"
    assert overflowed(played.main.calls)


@pytest.mark.usefixtures("light_agent")
async def test_a_first_prompt_that_does_not_fit_into_the_window_is_an_error(tokenizer: Path) -> None:
    family = Qwen3(thinks=False)
    played = await train(tokenizer, family, [Says(family.answer("yes"))], window=20)
    assert played.main.last_error is not None
    assert played.main.last_error.type == "ProviderError"
    assert played.main.last_error.message.startswith(f"{NO_ANSWER}: Prompt length (")
    assert (played.engine.asked, played.main.num_turns, played.main.stop_condition) == (0, 0, "provider_error")


@pytest.mark.usefixtures("light_agent")
async def test_a_request_that_the_engine_refuses_for_its_length_is_an_overflow_too(tokenizer: Path) -> None:
    family = Qwen3(thinks=True)
    too_long = "This model's maximum context length is 4096 tokens. Please reduce the length of the input."
    lines = [Says(family.answer("", bash(family, "echo one"), reasoning="Hm.")), Says(refuses=too_long)]
    played = await train(tokenizer, family, lines)
    assert_one_exact_branch(played)
    assert played.main.info["agent"]["outcome"] == "context_window"

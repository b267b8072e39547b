"""Scripts: which step answers which history, and scripts from files."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencode_env.scripted_model import Reply, Script, ScriptedModel, ScriptPolicy, ToolCall
from opencode_env.scripted_model.policy import ChatMessage, step_of

from tests.scripted_model.client import Body, assistant, send, user


async def test_each_turn_plays_the_next_step_and_then_the_script_says_it_has_ended() -> None:
    policy = ScriptPolicy.of(Reply(text="one"), Reply(text="two"))
    said: list[str] = []
    messages: list[Body] = [user("q")]
    async with ScriptedModel(policy) as model:
        for _ in range(3):
            said.append((await send(model, *messages)).joined("content"))
            messages += [assistant(said[-1]), user("go on")]
    assert said == ["one", "two", "I am a scripted model; my script has ended after 2 steps."]


async def test_the_last_step_can_be_played_for_ever() -> None:
    script = Script(steps=(Reply(text="one"), Reply(text="two")), repeat_last=True)
    history = [assistant("one"), *(assistant("two") for _ in range(5))]
    async with ScriptedModel(ScriptPolicy(script)) as model:
        assert (await send(model, user("q"), *history)).joined("content") == "two"


async def test_conversations_play_independently_of_each_other() -> None:
    async with ScriptedModel(ScriptPolicy.of(Reply(text="one"), Reply(text="two"))) as model:
        late = await send(model, user("a"), assistant("one"), user("more"))
        early = await send(model, user("b"))
    assert (late.joined("content"), early.joined("content")) == ("two", "one")


async def test_the_first_script_that_matches_prompt_and_model_plays() -> None:
    policy = ScriptPolicy(
        Script(steps=(Reply(text="sub"),), model="small"), Script(steps=(Reply(text="apples"),), match="apple")
    )
    async with ScriptedModel(policy) as model:
        texts = [
            (await send(model, user("an apple"), model_name="small")).joined("content"),
            (await send(model, user("an apple"))).joined("content"),
            (await send(model, {"role": "user", "content": [{"type": "text", "text": "apple"}]})).joined("content"),
            (await send(model, user("a pear"))).joined("content"),
        ]
    assert texts[:3] == ["sub", "apples", "apples"]
    assert "none of my scripts matches" in texts[3]


_replies = st.one_of(st.just(Reply()), st.just(Reply(reasoning="r")), st.builds(Reply, text=st.just("t")))


@given(steps=st.lists(_replies, min_size=1, max_size=6), cut=st.lists(st.booleans(), min_size=6, max_size=6))
def test_the_step_is_found_whatever_blank_messages_cut_streams_left(steps: list[Reply], cut: list[bool]) -> None:
    history: list[ChatMessage] = []
    for index, step in enumerate(steps):
        # A stream can leave a blank message only if it was cut in a step that has a text.
        if cut[index] and not step.blank:
            history.append(ChatMessage(role="assistant", content=""))
        assert step_of(steps, history) == index
        history.append(ChatMessage(role="assistant", content=step.text))
    assert step_of(steps, history) == len(steps)


STEP = {
    "text": "I look.",
    "tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}, {"name": "bash", "arguments": "{"}],
    "faults": [{"kind": "status", "status": 429, "attempts": 2, "retry_after": 0}],
}


@pytest.mark.parametrize(
    "content", [[STEP], {"steps": [STEP]}, {"scripts": [{"steps": [STEP], "match": "q", "model": "m"}]}]
)
def test_a_file_holds_steps_or_a_script_or_scripts(content: object, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(content))
    [step] = ScriptPolicy.load(path).scripts[0].steps
    assert step.tool_calls == (ToolCall(name="bash", arguments={"command": "ls"}), ToolCall(name="bash", arguments="{"))
    assert step.faults[0].attempts == 2


@pytest.mark.parametrize("content", ["{", "[]", "3", '[{"txt": "typo"}]', '{"scripts": []}', '{"step": []}'])
def test_a_bad_file_is_refused_with_its_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"script\.json is not a script"):
        ScriptPolicy.load(path)


def test_a_policy_without_scripts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ScriptPolicy()

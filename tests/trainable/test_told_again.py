"""Histories that are told again are forks; words that only stand there as well are not."""

from pathlib import Path
from typing import Any

import pytest
from opencode_runs.trainable.__main__ import main

from tests.trainable.doctored import run, trace
from tests.trainable.graphs import Line, answer, prompt


def says(role: str, content: str, **fields: Any) -> Line:
    """What a message says."""
    return {"message": {"role": role, "content": content, **fields}}


def shown(first: int, system: str) -> list[Line]:
    """A conversation behind an example whose words and ids the model says, too."""
    calculated = says("assistant", "", tool_calls=[{"id": "call_0", "name": "calculate", "arguments": "{}"}])
    result = says("tool", "4", tool_call_id="call_0")
    return [
        prompt(None, 100 + first) | says("system", system),
        prompt(first, 2) | says("user", "2 + 2?"),
        prompt(first + 1, 3) | calculated,
        prompt(first + 2, 4) | result,
        prompt(first + 3, 2) | says("user", "2 + 2?"),
        answer(first + 4, 50 + first) | calculated,
        prompt(first + 5, 4) | result,
        answer(first + 6, 60 + first) | says("assistant", f"It is {first}."),
    ]


def asked(first: int, question: str, *tools: str) -> list[Line]:
    """A conversation of one question; its first tokens are its own."""
    return [
        prompt(None, 10 + first) | says("system", "Help.") | {"tools": [{"name": name} for name in tools]},
        prompt(first, 2) | says("user", question),
        answer(first + 1, 30 + first),
    ]


@pytest.mark.parametrize(
    "nodes",
    [[*shown(0, "Be short."), *shown(8, "Be long.")], [*asked(0, "A?", "bash"), *asked(3, "B?")]],
    ids=["examples that say what the model says as well", "one system message with other tools"],
)
def test_other_conversations_are_no_forks(nodes: list[Line], tmp_path: Path) -> None:
    assert main([str(run(tmp_path, trace(nodes=nodes))), "--check"]) == 0


def test_one_question_behind_one_system_message_in_other_tokens_is_one_conversation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = run(tmp_path, trace(nodes=[*asked(0, "A?", "bash"), *asked(3, "A?")]))
    assert main([str(place), "--check"]) == 1
    assert "1 fork: message node 3 tells again" in capsys.readouterr().out


LONG = "The sum of all these numbers is forty-two, as was to be shown."


def retold(first: int, system: str, question: str, *history: Line) -> list[Line]:
    """A linear rollout's next request, as an agent without echo rules sends it: everything once more behind another
    system message."""
    nodes = [prompt(None, 100 + first) | says("system", system), prompt(first, 2) | says("user", question)]
    for told in history:
        nodes.append(prompt(first + len(nodes) - 1, 50 + len(nodes)) | told)
    return [*nodes, answer(first + len(nodes) - 1, 70 + first) | says("assistant", f"{LONG} {first}")]


RETOLD: dict[str, tuple[str, Line]] = {
    "another system message": ("What is it?", says("assistant", f"{LONG} 0")),
    "an edited question": ("What is it? It is 12:03.", says("assistant", f"{LONG} 0")),
    "an answer in parts": (
        "What is it?",
        says("assistant", "") | {"message": {"role": "assistant", "content": [{"type": "text", "text": f"{LONG} 0"}]}},
    ),
    "calls under numbers": ("What is it?", says("tool", "4", tool_call_id="call_0")),
}


@pytest.mark.parametrize(("question", "told"), RETOLD.values(), ids=RETOLD)
def test_three_roots_in_one_linear_rollout_are_two_forks(
    question: str, told: Line, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = retold(0, "It is 12:01.", "What is it?")
    if told["message"]["role"] == "tool":
        first += [prompt(2, 4) | told, answer(3, 71)]
    else:
        first[-1] |= says("assistant", f"<think>Well.</think>{LONG} 0")
    second = retold(len(first), "It is 12:02.", question, told)
    third = retold(len(first) + len(second), "It is 12:03.", question, told)
    assert main([str(run(tmp_path, trace(nodes=[*first, *second, *third]))), "--check"]) == 1
    assert "2 forks: " in capsys.readouterr().out

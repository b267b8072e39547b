"""What the tools must have seen of what a model said: by OpenCode's rules, which the tests of its echo prove."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from opencode_env.agents.opencode.echo import JAVASCRIPT_SPACE, parse_json
from opencode_env.cli_agent.interception.answer_steps import sound_arguments
from opencode_env.scripted_model import Reply, ToolCall
from verifiers.v1.types import AssistantMessage, Message, Messages, ToolMessage

WITNESS = "/tmp/told"
"""File in the sandbox to which every call that runs adds one line: its word, or its arguments as JSON."""

TELL = "tell"
TELL_TOOL = f"""\
import {{ appendFileSync }} from "node:fs"
export default {{
  description: "Tells what it was told",
  args: {{}},
  async execute(args) {{
    const told = JSON.stringify(args)
    appendFileSync("{WITNESS}", told + "\\n")
    return "told " + told
  }},
}}
"""
"""A tool of OpenCode's that takes anything."""

_TOOLS = ("bash", TELL)
NOTHING = object()
"""What a call that cannot run says."""


def seen(call: ToolCall) -> object:
    """What a tool gets of a call's arguments, as JavaScript sees it; NOTHING when the call cannot run."""
    text = sound_arguments(call.arguments_json)
    if not text.strip(JAVASCRIPT_SPACE):
        return {}
    try:
        value = parse_json(text)
    except ValueError:
        return NOTHING
    return NOTHING if _is_forbidden(value) else value


def _is_forbidden(value: Any) -> bool:
    """Whether it has a key that reaches the prototype of an object, which OpenCode's parser refuses."""
    left = [value]
    while left:
        match left.pop():
            case list(items):
                left += items
            case {"__proto__": _} | {"constructor": {"prototype": _}}:
                return True
            case dict(members):
                left += members.values()
    return False


def line_of(call: ToolCall) -> str | None:
    """What a call that runs adds to the witness; None when it adds nothing."""
    name = call.name if call.name in _TOOLS else call.name.lower()
    given = seen(call)
    if name == TELL and given is not NOTHING:
        return canonical(given)
    command = given.get("command") if name == "bash" and isinstance(given, dict) else None
    return command.split()[1] if isinstance(command, str) and WITNESS in command else None


def canonical(value: Any) -> str:
    """One text for every spelling of a value."""
    return json.dumps(value, sort_keys=True)


def lines_meant(replies: Iterable[Reply]) -> Counter[str]:
    """The lines that the witness must hold once all of these were said."""
    lines = (line_of(call) for reply in replies for call in reply.tool_calls)
    return Counter(line for line in lines if line is not None)


def lines_told(text: str) -> Counter[str]:
    """The lines that it holds."""
    return Counter(_line_told(line) for line in text.split("\n")[:-1])


def _line_told(line: str) -> str:
    try:
        return canonical(parse_json(line))
    except ValueError:
        return line


def _is_result(message: Message) -> bool:
    return message.role == "tool"


def assert_results(messages: Messages, replies: Sequence[Reply]) -> None:
    """Behind every answer stands one result for each id of its calls, and that of a call that runs says so."""
    answers = [at for at, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    for at, reply in zip([at for at in answers if messages[at].role == "assistant"], replies, strict=True):
        message = messages[at]
        assert isinstance(message, AssistantMessage)
        calls = message.tool_calls or []
        results = [one for one in takewhile(_is_result, messages[at + 1 :]) if isinstance(one, ToolMessage)]
        assert {call.id for call in calls} == {result.tool_call_id for result in results}
        shown = {result.tool_call_id: str(result.content) for result in results}
        for issued, call in zip(calls, reply.tool_calls, strict=True):
            if [one.id for one in calls].count(issued.id) == 1:
                line = line_of(call)
                assert shown[issued.id].startswith("told ") == (line is not None and call.name.lower() == TELL)
                if line is not None and call.name.lower() != TELL:
                    assert line in shown[issued.id]

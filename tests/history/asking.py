"""Requests as OpenCode makes them, sent to a role server one by one, and what reaches the model of them."""

from collections.abc import Sequence
from typing import Any

from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.scripted_model import Reply, ToolCall
from opencode_env.scripted_model.policy import ChatRequest

from tests.rlm.role_server import Rollout

Wire = dict[str, Any]
OPENCODE = OpenCodeHarnessConfig(id="opencode-env")
SYSTEM = {"role": "system", "content": "You are an agent."}
SPOKEN = '{ "command": "ls", "timeout": 5000.0 }'
ECHOED = '{"command":"ls","timeout":5000}'


def user(text: str) -> Wire:
    return {"role": "user", "content": text}


def result(identity: str, text: str = "done") -> Wire:
    return {"role": "tool", "tool_call_id": identity, "content": text}


def echo(*calls: tuple[str, str, str], content: str = "") -> Wire:
    made: Wire = {"role": "assistant", "content": content, "reasoning_content": ""}
    functions = [(identity, {"name": name, "arguments": arguments}) for identity, name, arguments in calls]
    if calls:
        made["tool_calls"] = [{"id": own, "type": "function", "function": function} for own, function in functions]
    return made


def spoken(identity: str = "c", arguments: str = SPOKEN, name: str = "bash") -> Reply:
    return Reply(tool_calls=(ToolCall(name=name, arguments=arguments, id=identity),))


class Replies:
    """A policy that gives one reply after the other, whatever it is asked."""

    def __init__(self, *replies: Reply) -> None:
        self._left = list(replies)

    def __call__(self, request: ChatRequest, /) -> Reply:
        return self._left.pop(0) if self._left else Reply(text="Done.")


async def ask(rollout: Rollout, messages: Sequence[Wire], session: str | None = "ses_1", **headers: str) -> None:
    """One call of a conversation, which must be answered."""
    named = {"x-session-id": session} if session else {}
    answer = await rollout.ask(list(messages), {**named, **headers}, stream=True)
    assert answer.status == 200, answer.body


def sent(rollout: Rollout) -> list[Wire]:
    """The messages of the newest request that reached the model."""
    found: list[Wire] = rollout.model.requests[-1].body["messages"]
    return found

"""What the scripted model says so that an agent runs a command follows from the tools that the agent offers."""

from typing import Any

import pytest
from opencode_env.conformance import SubmittingDialect, ToolDialect
from opencode_env.conformance.dialect import dialect_of
from opencode_env.scripted_model import ChatRequest, Reply
from opencode_env.scripted_model.policy import ChatBody


def request(**tools: dict[str, Any]) -> ChatRequest:
    """A request that offers these tools, by name, with the schema of their parameters."""
    offered = [{"type": "function", "function": {"name": name, "parameters": tools[name]}} for name in tools]
    body = {"messages": [{"role": "user", "content": "Hello."}], "tools": offered}
    return ChatRequest(ChatBody.model_validate(body), {}, 0)


def schema(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": required or list(properties)}


TEXT = {"type": "string"}


def called(reply: Reply | None) -> tuple[str, Any]:
    """The one tool call of a reply."""
    assert reply is not None
    (call,) = reply.tool_calls
    return call.name, call.arguments


def test_the_command_and_every_required_parameter_are_filled_in() -> None:
    more = {"kind": {"type": "string", "enum": ["short", "long"]}, "wait": {"type": "boolean"}}
    bash = schema(["command", "description", "kind", "wait"], command=TEXT, description=TEXT, note=TEXT, **more)
    arguments = {"command": "ls -l", "description": "as told", "kind": "short", "wait": False}
    assert called(ToolDialect().command(request(bash=bash), "ls -l")) == ("bash", arguments)


def test_a_tool_that_takes_the_words_of_a_program_gets_a_shell() -> None:
    shell = schema(command={"type": "array", "items": TEXT}, seconds={"type": "integer"})
    arguments = {"command": ["sh", "-c", "ls | wc"], "seconds": 600}
    assert called(ToolDialect().command(request(shell=shell), "ls | wc")) == ("shell", arguments)


def test_a_shell_is_taken_before_other_tools_that_take_code() -> None:
    offered = request(notebook=schema(code=TEXT), read=schema(path=TEXT), terminal=schema(cmd=TEXT))
    assert called(ToolDialect().command(offered, "ls")) == ("terminal", {"cmd": "ls"})


@pytest.mark.parametrize(
    "tools", [{}, {"read": schema(path=TEXT)}, {"bash": {}}, {"bash": schema(command={"type": "integer"})}]
)
def test_an_agent_without_a_tool_for_commands_gets_none(tools: dict[str, Any]) -> None:
    assert ToolDialect().command(request(**tools), "ls") is None


def test_an_agent_that_ends_with_a_command_gets_its_answer_in_it() -> None:
    offered = request(bash=schema(command=TEXT))
    arguments = {"command": "printf '%s\\n' DONE 'it'\"'\"'s 42'"}
    assert called(SubmittingDialect("DONE").answer(offered, "it's 42")) == ("bash", arguments)
    assert SubmittingDialect("DONE").answer(request(), "42") == Reply(text="42")


def test_a_given_dialect_is_imported_and_checked() -> None:
    assert isinstance(dialect_of("mini_swe_agent"), SubmittingDialect)
    assert isinstance(dialect_of("any", "opencode_env.conformance:ToolDialect"), ToolDialect)
    for given in ("nowhere:Dialect", "opencode_env.conformance:Nothing", "opencode_env.conformance", "json:dumps"):
        with pytest.raises(ValueError, match="--dialect"):
            dialect_of("any", given)

"""How a model speaks to an agent: which reply makes it run a shell command, and which one is an answer.

A dialect is a pure function of the request, so that one scripted model plays any number of conversations.
"""

from collections.abc import Mapping
from importlib import import_module
from shlex import quote
from typing import Any, Protocol

from pydantic import JsonValue

from opencode_env.scripted_model import ChatRequest, Reply, ToolCall

COMMAND_PARAMETERS = ("command", "cmd", "commands", "script", "code", "keystrokes")
"""Names under which tools take a shell command, the surest first."""
COMMAND_TOOLS = ("bash", "shell", "terminal", "exec", "command", "run")
"""Words in the names of tools that run shell commands, the surest first."""
_FILLERS: Mapping[str, JsonValue] = {"integer": 600, "number": 600, "boolean": False, "array": [], "object": {}}
"""Values of further required parameters by JSON type; a number is most often a time limit."""


class Dialect(Protocol):
    """The hooks that an agent's author gives the suite when the agent's tools do not tell (`--dialect MODULE:NAME`).

    One whose agent summarises may have a further one, `forge() -> str`: the shell command with which a hostile agent
    brings its own program to ask for a summary while the window has room.
    """

    def command(self, request: ChatRequest, command: str) -> Reply | None:
        """The reply that makes the agent run a shell command; None when it has no way to run one."""

    def answer(self, request: ChatRequest, text: str) -> Reply:
        """The reply that ends the agent's work with a text."""


class ToolDialect:
    """Commands are calls of the offered tool that takes one, as its JSON schema tells; answers are plain text."""

    def command(self, request: ChatRequest, command: str) -> Reply | None:
        offered = request.tool_parameters
        for name in sorted(offered, key=_rank):
            arguments = command_arguments(offered[name], command)
            if arguments is not None:
                return Reply(tool_calls=(ToolCall(name=name, arguments=arguments),))
        return None

    def answer(self, request: ChatRequest, text: str) -> Reply:
        return Reply(text=text)


class SubmittingDialect(ToolDialect):
    """An agent whose work ends with a command that prints certain words, not with a plain text."""

    def __init__(self, words: str) -> None:
        self.words = words

    def answer(self, request: ChatRequest, text: str) -> Reply:
        """The command that prints the words, and the text below them; the text when no command can be run."""
        return self.command(request, f"printf '%s\\n' {quote(self.words)} {quote(text)}") or Reply(text=text)


KNOWN: Mapping[str, Dialect] = {"mini-swe-agent": SubmittingDialect("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")}
"""Dialects of harnesses whose tools do not tell all, by harness id (`_` as `-`)."""


def dialect_of(harness: str, given: str | None = None) -> Dialect:
    """The dialect that was given as `MODULE:NAME`, else the one known for the harness, else what its tools tell.

    Raises:
        ValueError: `MODULE:NAME` cannot be imported, or is not a dialect.
    """
    if given is None:
        return KNOWN.get(harness.replace("_", "-"), ToolDialect())
    module, _, name = given.partition(":")
    try:
        found: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        why = f"must be MODULE:NAME of a Dialect that can be imported: {error}"
        raise ValueError(f"--dialect {given!r} {why}") from error
    dialect: Dialect = found() if isinstance(found, type) else found
    if not callable(getattr(dialect, "command", None)) or not callable(getattr(dialect, "answer", None)):
        raise ValueError(f"--dialect {given!r} has no methods `command` and `answer` (see {__name__}.Dialect)")
    return dialect


def command_arguments(schema: Mapping[str, JsonValue], command: str) -> dict[str, JsonValue] | None:
    """Arguments that make a tool run a command, every required parameter filled; None when it takes no command."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return None
    parameter = next((name for name in COMMAND_PARAMETERS if _command_value(properties.get(name), command)), None)
    if parameter is None:
        return None
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    arguments = {name: _filler(properties.get(name)) for name in names}
    return {**arguments, parameter: _command_value(properties[parameter], command)}


def _command_value(schema: JsonValue, command: str) -> JsonValue:
    """The command as a parameter of this schema takes it: a text, or the words of a program; None: not at all."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "string":
        return command
    return ["sh", "-c", command] if kind == "array" else None


def _filler(schema: JsonValue) -> JsonValue:
    if not isinstance(schema, dict):
        return "as told"
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    kind = schema.get("type")
    return _FILLERS.get(kind, "as told") if isinstance(kind, str) else "as told"


def _rank(name: str) -> int:
    return next((place for place, word in enumerate(COMMAND_TOOLS) if word in name.lower()), len(COMMAND_TOOLS))

"""OpenCode's built-in tools as the scripted solutions call them (names and arguments as OpenCode 1.18.33 declares)."""

from dataclasses import dataclass

from opencode_env.scripted_model.reply import Reply, ToolCall


@dataclass(frozen=True)
class Solution:
    """Two ways to go through one sample task: one that solves it and a plausible one that does not."""

    solve: tuple[Reply, ...]
    fail: tuple[Reply, ...]


def bash(command: str) -> ToolCall:
    return ToolCall(name="bash", arguments={"command": command})


def read(path: str) -> ToolCall:
    return ToolCall(name="read", arguments={"filePath": path})


def write(path: str, content: str) -> ToolCall:
    return ToolCall(name="write", arguments={"content": content, "filePath": path})


def edit(path: str, old: str, new: str, *, everywhere: bool = False) -> ToolCall:
    """Replace a text in a file, once or everywhere."""
    arguments = {"filePath": path, "oldString": old, "newString": new}
    return ToolCall(name="edit", arguments={**arguments, "replaceAll": True} if everywhere else {**arguments})


def grep(pattern: str, include: str | None = None) -> ToolCall:
    return ToolCall(name="grep", arguments={"pattern": pattern} | ({"include": include} if include else {}))


def glob(pattern: str) -> ToolCall:
    return ToolCall(name="glob", arguments={"pattern": pattern})


def turn(text: str, *calls: ToolCall, reasoning: str = "") -> Reply:
    """One assistant message with its tool calls, if any."""
    return Reply(text=text, reasoning=reasoning, tool_calls=calls)

"""Turns of a scripted model: tool calls, and turns that go wrong."""

from typing import Any

from opencode_env.scripted_model import Fault, FaultKind, Reply, ToolCall


def call(tool: str, **arguments: Any) -> Reply:
    """A turn that calls one tool."""
    return Reply(tool_calls=(ToolCall(name=tool, arguments=arguments),))


def bash(command: str, **options: Any) -> Reply:
    """A turn that runs one shell command."""
    return call("bash", command=command, description="a command of the script", **options)


def python(program: str, then: str = "") -> Reply:
    """A turn that runs a Python program in the place of its shell, or a program and what follows it."""
    run = "python3 /tmp/p.py 2>&1"
    return bash(f"cat > /tmp/p.py <<'END'\n{program}\nEND\n" + (run + then if then else f"exec {run}"))


def fault(kind: str, **settings: Any) -> tuple[Fault]:
    """One fault of a reply."""
    return (Fault(kind=FaultKind(kind), **settings),)


def faulty(kind: str, **settings: Any) -> Reply:
    """A turn of which nothing but its fault is seen."""
    return Reply(text="never seen", faults=fault(kind, **settings))

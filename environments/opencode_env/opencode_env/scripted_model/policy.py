"""What maps a request to a reply: a policy. One plays fixed scripts, read from JSON; one adds faults to another one.

A file holds a list of steps (see `Reply`), one script `{"steps": [...], "match": ..., "model": ...}`, or several,
`{"scripts": [...]}`. Invariant: the step is found from the request alone, so many conversations play at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from opencode_env.scripted_model.reply import Fault, Reply
from opencode_env.scripted_model.request import ChatRequest, Message


class Policy(Protocol):
    """Any callable that answers a request; called once per request, on the event loop: it must not block."""

    def __call__(self, request: ChatRequest, /) -> Reply: ...


class FaultyPolicy:
    """Another policy's replies with faults on chosen turns of every conversation (the first turn is 0)."""

    def __init__(self, policy: Policy, faults: Mapping[int, tuple[Fault, ...]]) -> None:
        self.policy = policy
        self.faults = dict(faults)

    def __call__(self, request: ChatRequest, /) -> Reply:
        reply = self.policy(request)
        added = self.faults.get(request.turn, ())
        return reply.model_copy(update={"faults": reply.faults + added}) if added else reply


def step_of(steps: Sequence[Reply], history: Iterable[Message]) -> int:
    """The index of the step that answers this history; `len(steps)` or more when all were played. An assistant message
    is one played step. A blank one is a played step only where the script has a blank reply; elsewhere it is what a
    client kept of a stream that was cut, and that step is played again."""
    step = 0
    for message in history:
        if message.blank and step < len(steps) and not steps[step].blank:
            continue
        step += 1
    return step


class Script(BaseModel):
    """A conversation from the model's side: one reply per turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: tuple[Reply, ...] = Field(min_length=1)
    match: str = ""
    """Plays in conversations with a user message that contains this text; empty: in all."""
    model: str | None = None
    """Plays for requests that ask for this model; None: for all."""
    repeat_last: bool = False
    """Whether the last step is played for ever, for an agent that never comes to an end."""

    def plays_in(self, request: ChatRequest) -> bool:
        """Whether this script answers the request."""
        if self.model is not None and self.model != request.model:
            return False
        return not self.match or any(self.match in text for text in request.user_texts)

    def reply(self, request: ChatRequest) -> Reply:
        """The reply at the request's turn; after the last step a plain text that says so."""
        step = step_of(self.steps, request.assistant_messages())
        if self.repeat_last:
            step = min(step, len(self.steps) - 1)
        if step < len(self.steps):
            return self.steps[step]
        return Reply(text=f"I am a scripted model; my script has ended after {len(self.steps)} steps.")


class _Scripts(BaseModel):
    model_config = ConfigDict(extra="forbid")

    scripts: tuple[Script, ...] = Field(min_length=1)


class ScriptPolicy:
    """Plays the first script that matches a request."""

    def __init__(self, *scripts: Script) -> None:
        if not scripts:
            raise ValueError("a ScriptPolicy needs at least one Script")
        self.scripts = scripts

    @classmethod
    def of(cls, *steps: Reply) -> Self:
        """One script for every conversation."""
        return cls(Script(steps=steps))

    @classmethod
    def load(cls, path: Path) -> Self:
        """The scripts of a JSON file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not JSON, or not a list of steps, a script, or a set of scripts.
        """
        try:
            content = from_json(path.read_bytes())
            if isinstance(content, dict) and "scripts" in content:
                return cls(*_Scripts.model_validate(content).scripts)
            return cls(Script.model_validate({"steps": content} if isinstance(content, list) else content))
        except ValueError as error:
            raise ValueError(f"{path} is not a script: {error}") from error

    def __call__(self, request: ChatRequest, /) -> Reply:
        for script in self.scripts:
            if script.plays_in(request):
                return script.reply(request)
        return Reply(text="I am a scripted model; none of my scripts matches this conversation.")

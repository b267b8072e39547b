"""What maps a request to a reply, the policy that adds faults to another one, and one that calls any tool."""

import random
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from opencode_env.scripted_model.fault import Fault
from opencode_env.scripted_model.reply import LABEL, Reply, ToolCall
from opencode_env.scripted_model.request import ChatRequest
from opencode_env.scripted_model.schema_values import value_of


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


class ToolsPolicy:
    """Calls one offered tool a turn, chosen with its arguments by chance, and stops after `turns`.

    Invariant: the same prompt, turn and seed give the same call, so a run can be repeated.

    Args:
        tools: pattern of the names of the tools that are called, as of a shell: `shop_*`.
        turns: how many calls a conversation has.
        seed: another seed, other calls.
    """

    def __init__(self, tools: str = "*", turns: int = 10, seed: int = 0) -> None:
        self.tools = tools
        self.turns = turns
        self.seed = seed

    def __call__(self, request: ChatRequest, /) -> Reply:
        names = [name for name in request.tools if fnmatchcase(name, self.tools)]
        if not names:
            return Reply(text=f"This is a {LABEL}; none of the tools that it was offered is like {self.tools!r}.")
        if request.turn >= self.turns:
            return Reply(text=f"I have called {request.turn} tools.")
        source = random.Random(f"{self.seed} {request.turn} {request.prompt}")
        name = source.choice(names)
        arguments = value_of({"type": "object", **request.tool_parameters[name]}, source)
        return Reply(text=f"I call {name}.", tool_calls=(ToolCall(name=name, arguments=arguments),))

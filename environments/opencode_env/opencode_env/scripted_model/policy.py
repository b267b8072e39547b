"""What maps a request to a reply, and the policy that adds faults to another one."""

from collections.abc import Mapping
from typing import Protocol

from opencode_env.scripted_model.fault import Fault
from opencode_env.scripted_model.reply import Reply
from opencode_env.scripted_model.request import ChatRequest


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

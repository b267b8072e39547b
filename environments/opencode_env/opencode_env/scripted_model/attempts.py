"""Counts how often the same call was sent, for faults that spoil its first attempts only."""

from collections import OrderedDict

from opencode_env.scripted_model.fault import Fault
from opencode_env.scripted_model.reply import Reply
from opencode_env.scripted_model.request import ChatRequest

_REMEMBERED_CALLS = 100_000


class Attempts:
    """The only state the server keeps between requests; of very many calls it forgets the oldest."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def faults_of(self, request: ChatRequest, reply: Reply) -> tuple[Fault, ...]:
        """The faults of the reply that spoil this attempt; attempts count only where a fault depends on them."""
        if all(fault.attempts is None for fault in reply.faults):
            return reply.faults
        attempt = self._counts.pop(request.call_key, 0)
        self._counts[request.call_key] = attempt + 1
        if len(self._counts) > _REMEMBERED_CALLS:
            self._counts.popitem(last=False)
        return tuple(fault for fault in reply.faults if fault.spoils(attempt))

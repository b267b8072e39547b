"""The model clients of an interception server, each shared by the rollouts that ask one endpoint alike.

Invariant: none is closed under a rollout, and of those that none uses only the last few are kept, so that a server
whose callers bring endpoints and keys of their own does not grow with them.
"""

import asyncio
from collections import Counter

from verifiers.v1.clients import BaseClientConfig, Client

from opencode_env.cli_agent.interception.bounded_errors import BoundedErrors
from opencode_env.cli_agent.interception.calls_under_way import TimedCalls
from opencode_env.cli_agent.interception.masked_client import MaskedClient, Masking, keys_of
from opencode_env.cli_agent.interception.training_client import model_client
from opencode_env.cli_agent.interception.whole_replies import with_whole_replies
from opencode_env.cli_agent.interception.whole_streams import WholeStreams

MOST_IDLE = 16
"""Unused clients that keep their connections."""


class KeptClients:
    """The clients of one server.

    Args:
        mask_keys: whether an endpoint's keys are masked in its answers.
    """

    def __init__(self, mask_keys: bool) -> None:
        self._mask_keys = mask_keys
        self._made: dict[tuple[str, str], Client] = {}
        self._uses: Counter[tuple[str, str]] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    def lend(self, seat: str, config: BaseClientConfig) -> Client:
        """The client of a seat and an endpoint, until it is given back; seats share none, so none can use up another's
        connections."""
        key = (seat, config.model_dump_json())
        self._uses[key] += 1
        if key not in self._made:
            self._made[key] = self._new(config)
        return self._made[key]

    def give_back(self, seat: str, config: BaseClientConfig) -> None:
        """Give back what was lent; the longest unused clients are closed."""
        key = (seat, config.model_dump_json())
        self._uses[key] -= 1
        if self._uses[key] > 0:
            return
        del self._uses[key]
        if key not in self._made:  # all are closed
            return
        self._made[key] = self._made.pop(key)
        idle = [known for known in self._made if known not in self._uses]
        for unused in idle[: max(0, len(idle) - MOST_IDLE)]:
            closing = asyncio.get_running_loop().create_task(self._made.pop(unused).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all."""
        left, self._made = list(self._made.values()), {}
        await asyncio.gather(*self._closing, *(client.close() for client in left), return_exceptions=True)

    def _new(self, config: BaseClientConfig) -> Client:
        """A client whose streams are whole or fail, and whose answers hold no keys."""
        inner = with_whole_replies(model_client(config))
        if self._mask_keys and (keys := keys_of(config)):
            inner = MaskedClient(inner, Masking(keys))
        return WholeStreams(TimedCalls(BoundedErrors(inner)))  # which hands on what it has read whole

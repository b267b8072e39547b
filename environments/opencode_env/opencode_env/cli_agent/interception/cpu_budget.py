"""How much of the serving process one rollout's requests may take: its thread's time, memory for their bodies, and for
what stays of them on the rollout's traces.

Invariant: a rollout whose requests take less than its share never waits here; one that takes more waits by itself, and
before its bytes are read, so that the connection holds them back. What a program of the agent says takes no more of a
trace than a few texts of a fixed size; what the agent itself says is kept whole, and counted.
"""

import asyncio
import hashlib
import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import ModelCall, Trace

from opencode_env.cli_agent.interception.call_slots import FirstCome
from opencode_env.cli_agent.traces import lineage

BURST_SECONDS = 1.0
"""Work that a rollout may have done at once after a pause."""

SECONDS_PER_BYTE = 2e-8
SECONDS_PER_ENTRY = 4e-5
"""What the engine's work on one request comes to: parsing, matching, hashing and sending, by byte and by message."""

SECONDS_PER_REFUSAL = 1e-3
"""What a request costs that comes to nothing, however small it is: nothing else holds back who sends many of them."""


class CpuBudget:
    """A budget of work that refills with time: `share` seconds of work per second; None means no limit."""

    def __init__(self, share: float | None) -> None:
        self._share = math.inf if share is None else share
        self._credit = BURST_SECONDS
        self._seen = time.monotonic()

    def charge(self, size: int, entries: int) -> None:
        """Count the work on a request of so many bytes and entries."""
        self._refill()
        self._credit -= size * SECONDS_PER_BYTE + entries * SECONDS_PER_ENTRY

    def charge_refusal(self) -> None:
        """Count the work on a request that is answered with an error."""
        self._refill()
        self._credit -= SECONDS_PER_REFUSAL

    async def turn(self) -> None:
        """Wait until what was charged has been worked off."""
        self._refill()
        while self._credit < 0:
            await asyncio.sleep(-self._credit / self._share)
            self._refill()

    def _refill(self) -> None:
        now = time.monotonic()
        gained = (now - self._seen) * self._share if now > self._seen else 0.0
        self._credit = min(BURST_SECONDS, self._credit + gained)
        self._seen = now


class Memory(FirstCome):
    """Bytes of request bodies that one rollout may hold at once (None: no limit), given out in the order of arrival."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self._free = self._size = math.inf if size is None else size

    async def hold(self, size: float, until_end: ExitStack) -> None:
        """Wait for so many bytes, at most all there are, and hold them until then."""
        size = min(size, self._size)
        await self._enter(size)
        until_end.callback(self._leave, size)

    def _take(self, amount: float) -> bool:
        fits = amount <= self._free
        self._free -= amount if fits else 0
        return fits

    def _put_back(self, amount: float) -> None:
        self._free += amount


MAX_TRACE = "max_trace"
"""The stop of a rollout whose traces are full."""

_BYTES_PER_TOKEN = 40
"""Of a token's id, as an entry of a list."""


class TraceBytes:
    """What one rollout's calls leave on its traces, which may hold `size` bytes (None: no limit); of programs' texts of
    more than `longest` bytes in all (None: no limit) the ends."""

    def __init__(self, size: int | None, longest: int | None) -> None:
        self.held = 0
        self._size = size
        self._longest = longest
        self._counted = {False: 0, True: 0}
        """How many nodes of the main and of the sub trace (True) were counted."""

    @property
    def full(self) -> bool:
        """Whether no further call may leave anything."""
        return self._size is not None and self.held >= self._size

    def take(self, trace: Trace[Any, Any, Any], record: ModelCall, *, sub: bool, program: bool) -> None:
        """Count what a recorded call has left on its trace, the `sub` trace or the main one; of a `program` of the
        agent's with its long texts cut."""
        start = self._counted[sub]
        if program and self._longest is not None and record.node is not None:
            new = [trace.nodes[node] for node in lineage(trace.nodes, record.node) if node >= start]
            _cut(trace, [node for node in new if not node.sampled], self._longest)
        if record.sampling is not None:
            size = bytes_of(record.sampling)
            if program and self._longest is not None and size > self._longest:
                record.sampling = None
            else:
                self.held += size
        for node in trace.nodes[start:]:
            tokens = len(node.token_ids) * _BYTES_PER_TOKEN
            self.held += bytes_of(node.message) + tokens + sum(map(bytes_of, node.tools))
        self._counted[sub] = len(trace.nodes)


def bytes_of(value: BaseModel) -> int:
    """Bytes of the texts of a message or a setting, in memory or as JSON, whichever are more."""
    given = value.model_dump()
    held, left = 0, list[Any]([given])
    while left:
        one = left.pop()
        if isinstance(one, str):
            held += sys.getsizeof(one)
        elif isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one
    return max(held, len(to_json(given)))


_SHOWN = 200
"""Characters at each end of a text that was cut."""


class _Shortening:
    """Cuts the texts of one call that are beyond so many bytes in all, the newest first; short ones stay."""

    def __init__(self, size: int) -> None:
        self._left = size

    def of(self, value: BaseModel) -> Any:
        """A model of the same type."""
        return (
            value.model_copy()
            if bytes_of(value) <= _SHOWN
            else type(value).model_validate(self._cut(value.model_dump()))
        )

    def _cut(self, value: Any) -> Any:
        if isinstance(value, str):
            size = sys.getsizeof(value)
            if len(value) <= 3 * _SHOWN or size <= self._left:
                self._left -= size
                return value
            digest = hashlib.sha256(value.encode(errors="replace")).hexdigest()
            return f"{value[:_SHOWN]} [… {len(value)} characters in all, SHA-256 {digest} …] {value[-_SHOWN:]}"
        if isinstance(value, dict):
            return {key[: 3 * _SHOWN]: self._cut(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._cut(one) for one in value]
        return value


def _cut(trace: Trace[Any, Any, Any], nodes: Sequence[MessageNode], longest: int) -> None:
    """Cut what new nodes say, and the tools that came with them, to so many bytes of long texts in all."""
    if sum(bytes_of(part) for node in nodes for part in (node.message, *node.tools)) <= longest:
        return
    shortening = _Shortening(longest)
    for node in nodes:
        node.message = shortening.of(node.message)
        short = {id(tool): shortening.of(tool) for tool in node.tools}
        node.tools = [*short.values()]
        trace.tools = [short.get(id(tool), tool) for tool in trace.tools]

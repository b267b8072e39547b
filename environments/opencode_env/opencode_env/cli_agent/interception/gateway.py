"""One rollout's gateway to the model: its sessions on a server, its bounds, and what its requests have come to.

Invariant: a request that is refused here was never a model call. It is counted on the trace, it costs the rollout
nothing but time, and it makes no error of it.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import ModelCall
from verifiers.v1.types import Tool

from opencode_env.cli_agent.interception.beginnings import Beginnings
from opencode_env.cli_agent.interception.call_slots import MainCalls
from opencode_env.cli_agent.interception.config import GatewayConfig
from opencode_env.cli_agent.interception.cpu_budget import CpuBudget, Memory, TraceBytes
from opencode_env.cli_agent.interception.history import History
from opencode_env.cli_agent.interception.own_calls import AgentProgram, ProgramLoad
from opencode_env.cli_agent.interception.refusals import RequestRefused
from opencode_env.cli_agent.interception.request_rules import ModelRequests, echo_rules, model_requests
from opencode_env.cli_agent.interception.restored import Said
from opencode_env.cli_agent.interception.sub_rollout import SubRollout
from opencode_env.cli_agent.traces import AnyTrace

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

RECORD = "gateway"
"""Key in the main trace's `info` with what was refused and left out, by reason; absent when nothing was."""

LAST_REFUSED = "last_refused"
"""Key in that record with why the newest main request was refused; absent when it was not."""

REPEATED, PARTIAL = "repeated", "ghosts"
"""Keys in that record with counts: calls that were sent again and not sampled again, and dropped partial answers."""

_BODIES_HELD = 4
"""Largest bodies that one rollout may have in memory at once."""


class KeepsTurns(Protocol):
    """What keeps a rollout's turns, and continues one (see `opencode_env.cli_agent.turns`)."""

    def asked(self, call: Any) -> None:
        """Take up a main call of the agent's own program, about to be served."""

    def recorded(self, main: AnyTrace, sub: AnyTrace | None) -> None:
        """Mask what a call has sampled, where that is not to train."""

    async def answered(self, place: Path, events: list[bytes]) -> None:
        """Note the stream that answered the call of a kept turn."""


class Gateway:
    """Holds one rollout's bounds, and what they have been told. The agent has the `secret`, the key of the session that
    serves its main calls; `sub_bearer`, that of its sub calls (`side`, if it has any), never leaves this process."""

    def __init__(
        self,
        config: GatewayConfig,
        session: RolloutSession,
        program: AgentProgram,
        secret: str,
        side: SubRollout | None = None,
        sub_bearer: str = "",
    ) -> None:
        self.config = config
        self.main = session
        self.program = program
        self.secret = secret
        self.side = side
        self.sub_bearer = sub_bearer
        harness = session.trace.agent.config.harness
        self.calls = MainCalls(session.limits, config.max_parallel_calls)
        self.rules: ModelRequests = model_requests(harness)
        self.echoes = echo_rules(harness)
        """How the rollout's agent sends its history back, if it says so."""
        self.histories = [
            None if self.echoes is None else History(one, self.echoes, self._note_partial)
            for one in (session, *(() if side is None else (side.session,)))
        ]
        """Of the main and the sub session."""
        self.cpu = CpuBudget(config.max_share)
        self.memory = Memory(None if config.max_body is None else _BODIES_HELD * config.max_body)
        self.left = TraceBytes(config.max_trace, config.max_program_text)
        """What the rollout's calls have left on its traces."""
        self.offered: dict[bool, tuple[dict[str, Any], list[Tool] | None]] = {}
        """The tools of the newest main (True) and sub call, as they came and typed."""
        self.open = 0
        """Requests that are taken up now, waiting ones included."""
        self.aside = asyncio.Semaphore(4)
        """Places for requests that are not model calls."""
        self.load = ProgramLoad()
        self.prompts: dict[tuple[bool, str | None], tuple[int, int]] = {}
        """Bytes and tokens of the newest answered request, by whether it is a main call, and conversation."""
        self.keys: dict[int, str] = {}
        """Of failed calls that bore one, by position in `trace.calls`."""
        self.waits: dict[int, float] = {}
        """Of refused calls, the seconds after which the endpoint wanted to be asked again, by that position."""
        self.turns: KeepsTurns | None = None
        self._partial: set[Said] = set()
        self.beginnings = Beginnings(frozenset() if self.echoes is None else self.echoes.side_agents)

    def refuse(self, error: RequestRefused) -> None:
        """Count a refused request, which is paid for."""
        self.cpu.charge_refusal()
        self.note("refused", [str(error)])

    def main_request(self, error: RequestRefused | None) -> None:
        """Note on the trace what came of the newest main request, as long as it was refused."""
        info = self.main.trace.info
        if error is not None and not self.main.released:
            info.setdefault(RECORD, {})[LAST_REFUSED] = str(error)[:200]
        elif RECORD in info:
            info[RECORD].pop(LAST_REFUSED, None)

    def step_keys(self, calls: Sequence[ModelCall]) -> Sequence[str | None]:
        """For each recorded call the key by which all sends of one call are known; None where it bore none."""
        return [self.keys.get(position) for position in self._positions(calls)]

    def waits_of(self, calls: Sequence[ModelCall]) -> Sequence[float]:
        """For each recorded call the seconds after which it might come again; 0 where the endpoint named none."""
        return [self.waits.get(position, 0.0) for position in self._positions(calls)]

    def _positions(self, calls: Sequence[ModelCall]) -> Sequence[int]:
        positions = {id(call): position for position, call in enumerate(self.main.trace.calls)}
        return [positions.get(id(call), -1) for call in calls]

    def _note_partial(self, answers: list[Said]) -> None:
        """Count what was dropped from a request's history, each once, however often it is sent back."""
        if len(self._partial) < 1000 and not self.main.released:
            self._partial.update(answers)
            self.main.trace.info.setdefault(RECORD, {})[PARTIAL] = len(self._partial)

    def note(self, kind: str, reasons: list[str]) -> None:
        """Count on the trace why something of a request was refused, dropped or not known."""
        if self.main.released:
            return
        counts: dict[str, int] = self.main.trace.info.setdefault(RECORD, {}).setdefault(kind, {})
        for reason in reasons:
            name = reason[:200]
            if name not in counts and len(counts) >= 20:
                name = "others"
            if name not in counts:
                logger.warning("%s of a model request: id=%s %s", kind, self.main.trace.id, name)
            counts[name] = counts.get(name, 0) + 1

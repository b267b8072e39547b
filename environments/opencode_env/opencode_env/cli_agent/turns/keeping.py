"""Keeps turns of rollouts: a folder for each, written while a main call waits for its answer.

Invariant: a kept turn is whole or it is not there: its folder gets its name when everything is in it. The answer of the
call that waited is not given to the agent before its files were copied. Of what is kept the host opens names of its own
only (see `opencode_runs.turns.kept`).
"""

import asyncio
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_sandbox.file_lock import private_directory, try_lock
from agent_sandbox.toolbox.kept_files import KeepsFiles, KeptFiles, NotKept
from opencode_runs.turns.kept import ANSWER, ENDED, FILES, LOCK, ROW, TRACE, KeptTurn, Origin
from pydantic_core import to_json
from verifiers.v1.runtimes import Runtime
from verifiers.v1.serve.delta import pack

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.gateway import Gateway
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.cli_agent.turns.config import TurnsConfig
from opencode_env.cli_agent.turns.continued import BRANCH, Continued
from opencode_env.cli_agent.turns.disk import DiskUse
from opencode_env.cli_agent.turns.trace_state import packed, trace_state

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")

RECORD = "turns"
"""Key in `trace.info` with the folder of a rollout's kept turns, and why the last one was not kept, if any was not."""


@dataclass(frozen=True)
class Kind:
    """What is the same for all turns of a rollout."""

    task_key: str
    task_hash: str
    row: Mapping[str, Any]
    """The task's data."""
    env: str
    versions: Mapping[str, str]
    model: str
    sampling: Mapping[str, Any]
    runtime: str
    settings: str
    obstacle: str | None = None
    """Why no turn of the rollout can be restored."""


class RolloutTurns:
    """The kept turns of one rollout: those that it leaves, and the one that it continues.

    Args:
        kind: of the rollout.
        config: whether and when turns are kept.
        disk: what all rollouts of this process keep.
        continued: the turn that it goes on from.
        folder: of its kept turns, and what holds its lock; None is one of its own.
    """

    def __init__(
        self,
        kind: Kind,
        config: TurnsConfig,
        disk: DiskUse | None,
        continued: Continued | None = None,
        claimed: tuple[Path, int] | None = None,
    ) -> None:
        self.kind = kind
        self.continued = continued
        self.obstacle = kind.obstacle
        """Why no turn can be restored from now on."""
        self._config = config
        self._disk = disk
        self._folder = None if claimed is None else claimed[0]
        self._lock = None if claimed is None else claimed[1]
        self._box: KeepsFiles | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._last_turn = 0 if continued is None else continued.turn.turn - (not continued.resumed)
        self._last_time = time.monotonic()
        self._last_files: Path | None = None
        self._kept = 0
        self._held_seconds = self._seconds = 0.0
        self._trace: AnyTrace | None = None

    async def provide(self, box: Runtime) -> None:
        """Take up the rollout's sandbox, in which nothing has run; put the files of a continued turn there.

        Raises:
            SandboxError: they could not be put there.
        """
        if not isinstance(box, KeepsFiles):
            return
        self._box = box
        if self.continued is not None:
            await box.put_files(self.continued.files)

    def begin(self, trace: AnyTrace) -> None:
        """Take up the trace that was minted."""
        self._trace = trace
        if self.continued is not None:
            self.continued.seed(trace)
        if self._disk is None:
            return
        if self._folder is None:
            self._folder = private_directory(self._disk.folder) / trace.id
            private_directory(self._folder)
            self._lock = try_lock(self._folder / LOCK)
        trace.info[RECORD] = {"folder": str(self._folder)}

    def registered(self, gateway: Gateway) -> None:
        """Take up the gateway: of a continued turn it counts and compares what came before."""
        if self.continued is None:
            return
        trace, history = gateway.main.trace, gateway.histories[0]
        for call in trace.calls:
            gateway.calls.tally.add(call, trace.nodes)
        session = self.continued.turn.session_id
        gateway.beginnings.first = session
        if history is not None and session is not None and self.continued.leaf is not None:
            history.forks.committed(self.continued.leaf, session)

    @property
    def seconds_before(self) -> float:
        """Seconds that the agent had before a continued turn."""
        return 0.0 if self.continued is None else self.continued.turn.seconds

    def asked(self, call: Call) -> None:
        """Take up a main call of the agent's own program, about to be served; begin to keep its turn if that is due."""
        gateway, trace = call.gateway, call.gateway.main.trace
        if call.conversation is None or call.conversation != gateway.beginnings.first:
            return
        agent = (call.key or "").partition(":")[2]
        if gateway.echoes is None or agent in gateway.echoes.side_agents:
            return
        digest = request_digest(call.body)
        if self.continued is not None and self.continued.asked(digest):
            call.answer_place, call.known_answer = self.continued.turn.place, self.continued.known_answer()
        if self._disk is None or self._box is None or (self._keeping is not None and not self._keeping.done()):
            return
        turn, now = trace.num_turns + 1, time.monotonic()
        if turn == self._last_turn or not self._config.due(turn - self._last_turn, now - self._last_time):
            return
        self._last_turn, self._last_time = turn, now
        leaf = None if gateway.histories[0] is None else gateway.histories[0].forks.last(call.conversation)
        state = trace_state(trace, leaf)
        obstacle = self.obstacle or ("another call of the rollout was under way" if gateway.open > 1 else None)
        manifest = self._manifest(trace, turn, digest, call.conversation, obstacle)
        if self._folder is not None:
            call.answer_place = self._folder / f"{turn:04d}"
        call.keeping = self._keeping = asyncio.create_task(self._keep(self._box, manifest, state))

    def _manifest(self, trace: AnyTrace, turn: int, digest: str, session: str, obstacle: str | None) -> KeptTurn:
        origin = trace.info.get(BRANCH)
        return KeptTurn(
            digest=digest,
            turn=turn,
            trace_id=trace.id,
            session_id=session,
            task_key=self.kind.task_key,
            task_hash=self.kind.task_hash,
            env=self.kind.env,
            versions=dict(self.kind.versions),
            model=self.kind.model,
            sampling=dict(self.kind.sampling),
            runtime=self.kind.runtime,
            seconds=round(self.seconds_before + time.time() - trace.timing.agent.start, 3),
            held_seconds=0.0,
            file_bytes=0,
            settings=self.kind.settings,
            origin=None if origin is None else Origin.model_validate(origin),
            unrestorable=obstacle,
        )

    async def _keep(self, box: KeepsFiles, manifest: KeptTurn, state: dict[str, Any]) -> None:
        begun = time.monotonic()
        assert self._folder is not None
        assert self._disk is not None
        place = self._folder / f"{manifest.turn:04d}"
        partial = place.with_name(f".{place.name}")
        try:
            await asyncio.to_thread(_begin, partial)
            kept, held, obstacle = await self._files(box, partial / FILES)
            update = {"file_bytes": kept.bytes, "held_seconds": round(held, 4)}
            whole = manifest.model_copy(update={**update, "unrestorable": manifest.unrestorable or obstacle})
            await asyncio.to_thread(_finish, partial, place, whole, self.kind.row, state)
            self._last_files = place / FILES if (place / FILES).is_dir() else self._last_files
            await asyncio.to_thread(self._disk.added, place)
            self._kept += 1
            self._held_seconds += held
        except Exception as error:  # noqa: BLE001 - the rollout goes on without the turn
            logger.warning("turn %d of %s was not kept: %s", manifest.turn, manifest.trace_id, error)
            if self._trace is not None:
                self._trace.info[RECORD]["not_kept"] = f"turn {manifest.turn}: {error}"[:500]
            await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
        finally:
            self._seconds += time.monotonic() - begun

    async def _files(self, box: KeepsFiles, folder: Path) -> tuple[KeptFiles, float, str | None]:
        """Keep the sandbox's files; returns what was kept, for how long it was held still, and what stands against
        restoring it."""
        assert self._disk is not None
        try:
            kept, held = await box.keep_files(folder, self._last_files, self._disk.most_bytes)
        except NotKept as error:
            await asyncio.to_thread(shutil.rmtree, folder)
            return KeptFiles(), 0.0, str(error)
        if kept.processes:
            names = ", ".join(sorted(set(kept.processes))[:5])
            return kept, held, f"processes ran beside the agent's program: {names}"
        return kept, held, None

    async def answered(self, place: Path, events: list[bytes]) -> None:
        """Note the stream that answered the call of a kept turn, before the agent gets it."""
        try:
            await asyncio.to_thread(_note_answer, place, events)
        except OSError as error:
            logger.warning("the answer of kept turn %s was not noted: %s", place, error)

    async def stop(self) -> None:
        """Keep no more, as the agent has ended; what is being kept is finished. Idempotent."""
        self._box = None
        if self._keeping is not None:
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None
        if self._trace is not None and self._disk is not None:
            self._trace.record_metrics(
                {
                    "turns_kept": float(self._kept),
                    "turns_held_seconds": round(self._held_seconds, 4),
                    "turns_kept_seconds": round(self._seconds, 4),
                }
            )

    def ended(self) -> None:
        """The rollout has come to its own end, and is not gone back to when this process ends."""
        if self._folder is not None and self._folder.is_dir():
            (self._folder / ENDED).touch(mode=0o600)

    def close(self) -> None:
        """Let go of its folder. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def request_digest(body: Mapping[str, Any]) -> str:
    """What two requests have in common that ask the same, whichever model they ask: SHA-256, in hexadecimal digits."""
    return hashlib.sha256(to_json({name: body.get(name) for name in ("messages", "tools")})).hexdigest()


def settings_digest(settings: Any) -> str:
    """What equal settings have in common."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def _note_answer(place: Path, events: list[bytes]) -> None:
    if place.is_dir():  # else it was not kept
        partial = place / f".{ANSWER}"
        partial.write_bytes(pack(events))
        partial.rename(place / ANSWER)


def _begin(partial: Path) -> None:
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(mode=0o700)
    (partial / FILES).mkdir(mode=0o700)


def _finish(partial: Path, place: Path, manifest: KeptTurn, row: Mapping[str, Any], state: dict[str, Any]) -> None:
    (partial / ROW).write_text(json.dumps(row))
    (partial / TRACE).write_bytes(packed(state))
    manifest.write(partial)
    if place.exists():
        shutil.rmtree(place)
    partial.rename(place)

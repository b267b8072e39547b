"""Kept turns: which a rollout keeps, which it continues, and how they are written.

A rollout continues the turn that its task names; else, where turns are kept, the last one of a rollout of the same task
and settings whose process has ended in the middle. Of those each is continued once at a time, and never one that was
begun while this process served: what was cancelled on purpose stays so.

Each rollout has a folder, written to while a main call waits for its answer. A kept turn is whole or it is not there:
its folder gets its name when everything is in it. The answer of the call that waited is not given to the agent before
its files were copied. Of what is kept the host opens names of its own only (see `opencode_runs.turns.kept`).
"""

import asyncio
import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from opencode_runs.errors import BadInputError
from opencode_runs.traces.record import Origin
from opencode_runs.turns.kept import (
    ANSWER_FILE,
    ENDED,
    FILES,
    LOCK,
    ROW,
    TRACE,
    KeptTurn,
    RolloutFacts,
    TurnRow,
    kept_turns,
    read_turn,
    turn_places,
)
from pydantic import BeforeValidator, ByteSize, Field, field_validator
from pydantic_config import BaseConfig
from pydantic_core import to_json
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.errors import ChildrenRun, NotKept
from rollout_sandbox.file_lock import private_directory, try_lock
from rollout_sandbox.interface import KeptFiles, SandboxAbilities
from rollout_sandbox.podman import is_ours
from rollout_sandbox.told import task_name
from verifiers.v1.agent import Agent, Agents
from verifiers.v1.configs.agent import AgentConfig, agent_config_fields
from verifiers.v1.errors import EnvError, TaskError
from verifiers.v1.runtimes import Runtime, SubprocessConfig
from verifiers.v1.serve.delta import pack
from verifiers.v1.task import Task
from verifiers.v1.utils.compile import resolve_runtime_config

from opencode_env.cli_agent.env import CliAgentEnvConfig
from opencode_env.cli_agent.features import Feature, Run
from opencode_env.cli_agent.interception import path
from opencode_env.cli_agent.interception.callers import SubRollout
from opencode_env.cli_agent.interception.gateway import Call, Gateway
from opencode_env.cli_agent.interception.request_steps import commit, require_place
from opencode_env.cli_agent.rollout import Rollout, RolloutFeature, rollout_of
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.cluster.claims import CLAIM, Claim, Claims, driver_lives
from opencode_env.kept_turns.continued import BRANCH, FILLED, Continued, rollout_state
from opencode_env.kept_turns.disk_limit import DiskUse

logger = logging.getLogger("verifiers.v1.opencode_env.kept_turns")

MOST_SECONDS = 300.0
"""For which a call's answer waits for its turn's files at most, and never so long that its program gives up."""

CHILDREN_SECONDS = 2.0
"""For which a turn waits for children of the agent's program to end, as for a search that it runs when it starts."""

REMOVAL_SECONDS = 10.0
"""For which an older claim's folder is tried to be removed: while a process on this machine has a file open there, NFS
leaves a name of it."""

TURNS_RECORD = "turns"
"""Key in `trace.info` with the folder of a rollout's kept turns, and why the last one was not kept, if any was not."""

CONFINED = "confined"
"""What a kept turn of the confined local sandbox says of it."""


class TurnsConfig(BaseConfig):
    """Whether and how often turns are kept."""

    keep: Path | None = None
    """Folder in which turns are kept, made with mode 0700; None keeps none. A rollout that a folder's turn does not
    say has ended, and that was begun before this process served, goes on from its last turn there."""
    every: Annotated[str, BeforeValidator(str)] = "1"
    """Turns from one kept turn of a rollout to the next (`5`), or seconds (`30s`)."""
    max_disk: Annotated[ByteSize, Field(ge=1 << 20)] | None = ByteSize(64 << 30)
    """Bytes of all files that this process keeps, each counted as 16 KiB at least; beyond it the oldest turns are
    removed, but for the last one of each running rollout. A turn whose files alone have more is kept without them.
    None: no limit."""

    @field_validator("every")
    @classmethod
    def _is_turns_or_seconds(cls, every: str) -> str:
        if re.fullmatch(r"[1-9][0-9]{0,8}s?", every) is None:
            meant = 'is not a number of turns such as "5", and none of seconds such as "30s"'
            raise ValueError(f"every: {every!r} {meant}")
        return every

    def due(self, turns: int, seconds: float) -> bool:
        """Whether a turn is to be kept so many turns and seconds after the last one."""
        number = int(self.every.removesuffix("s"))
        return seconds >= number if self.every.endswith("s") else turns >= number


@dataclass(frozen=True)
class Kind:
    """Holds what is the same for all turns of a rollout."""

    facts: RolloutFacts
    row: Mapping[str, Any]
    info: Sequence[str] = ()
    """Keys of `trace.info` whose values they hold."""
    obstacle: str | None = None
    brought_back: frozenset[str] = frozenset()
    """The tool servers whose state the task brings back in a rollout that is continued."""
    patience: float = math.inf
    """Seconds for which the agent's program waits for an answer before it takes the endpoint for failed."""


class RolloutTurns(RolloutFeature):
    """The kept turns of one rollout: those that it leaves, and the one that it goes on from, if any. `disk` is what all
    rollouts of this process keep; `claimed` its folder and the lock of that, where it is not one of its own; `claim`
    that of its try on a cluster."""

    def __init__(
        self,
        kind: Kind,
        config: TurnsConfig,
        disk: DiskUse | None,
        continued: Continued | None = None,
        claimed: Sequence[Any] = (None, None),
        claim: Claim | None = None,
    ) -> None:
        self.kind = kind
        self.continued = continued
        self._config = config
        self._disk = disk
        self._folder: Path | None = claimed[0]
        self._lock: int | None = claimed[1]
        self._claim = claim
        self._box: SandboxAbilities | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._last_turn = 0 if continued is None else continued.turn.turn - (not continued.resumed)
        self._last_digest = "" if continued is None else continued.turn.digest
        self._last_time = time.monotonic()
        self._last_files: Path | None = None
        self._kept = 0
        self._held_seconds = self._seconds = 0.0
        self._trace: AnyTrace | None = None

    async def provide(self, box: Runtime) -> None:
        """Take up the rollout's sandbox, in which nothing has run; put the files of a continued turn there."""
        sandbox = abilities_of(box)
        if not sandbox.can_keep_files:
            return
        self._box = sandbox
        if self.continued is not None:
            await sandbox.put_files(self.continued.turn.place / FILES)

    def begun(self, trace: AnyTrace, sub: SubRollout | None) -> None:
        self._trace = trace
        if self.continued is not None:
            self.continued.seed(trace)
            if sub is not None:
                self.continued.seed_sub(sub)
        if self._disk is None:
            return
        folder = self._folder or self._disk.folder / trace.id
        trace.info[TURNS_RECORD] = {"folder": str(folder)}
        try:
            if self._folder is None:
                private_directory(private_directory(self._disk.folder) / trace.id)
                private_directory(_own(folder, self._claim))
                self._lock = try_lock(folder / LOCK)
        except OSError as error:
            self._disk = None
            self._note(f"no turn: {error}")
            return
        self._folder = folder
        self._disk.running.add(folder)

    def registered(self, gateway: Gateway) -> None:
        """Have its calls keep turns. Of a continued turn the gateway counts and compares what came before."""
        gateway.add_step(path.ASK, self.keep_turn, after=require_place)
        if self.continued is None:
            return
        gateway.add_step(path.RECORD, self.mask, after=commit)
        trace = gateway.main.trace
        for call in trace.calls:
            gateway.calls.tally.add(call, trace.nodes)
        gateway.fixed_prompts.first = self.continued.turn.session_id
        for main, history in gateway.histories.items():
            self.continued.resume(history.forks, main=main)
        gateway.summaries.used.update(self.continued.state.get(FILLED, {}))

    def keep_turn(self, call: Call) -> None:
        """Begin to keep the turn of a main call of the agent's own program, where that is due: not of a call that a
        limit or the task refuses. Changes `before_answer`, and `events` where the answer is known."""
        gateway = call.gateway
        if (
            not (call.is_main and call.caller.own)
            or call.conversation is None
            or call.conversation != gateway.fixed_prompts.first
        ):
            return
        agent = (call.key or "").partition(":")[2]
        if gateway.echoes is None or agent in gateway.echoes.side_agents:
            return
        continued = self.continued
        if continued is not None and continued.same_request is None and continued.asked(request_digest(call.body)):
            call.events = continued.known_answer()
        try:
            self._begin_keeping(call, call.conversation)
        except Exception as error:  # noqa: BLE001 - the call goes on without it
            self._note(f"turn {gateway.main.trace.num_turns + 1}: {error}")

    def mask(self, call: Call) -> None:
        """Mask the recorded answer, where the rollout goes on in another way and nothing of it trains."""
        assert self.continued is not None
        self.continued.mask_own(call.gateway.main.trace, None if call.sub is None else call.sub.trace)

    def _begin_keeping(self, call: Call, session: str) -> None:
        if self._disk is None or self._box is None or (self._keeping is not None and not self._keeping.done()):
            return
        gateway, trace = call.gateway, call.gateway.main.trace
        turn, now = trace.num_turns + 1, time.monotonic()
        assert self._folder is not None
        place = self._folder / f"{turn:04d}"
        noted = [] if call.events is not None else [partial(self._note_answer, call, place)]
        if turn == self._last_turn:  # sent again
            call.before_answer += noted if request_digest(call.body) == self._last_digest else []
            return
        if not self._config.due(turn - self._last_turn, now - self._last_time):
            return
        digest = request_digest(call.body)
        self._last_turn, self._last_digest, self._last_time = turn, digest, now
        state = rollout_state(gateway, session, self.kind.info)
        before = 0.0 if self.continued is None else self.continued.turn.seconds
        obstacle = self._obstacle(trace) or ("another call of the rollout was under way" if gateway.open > 1 else None)
        origin = trace.info.get(BRANCH)
        manifest = KeptTurn(
            **dict(self.kind.facts),
            digest=digest,
            turn=turn,
            trace_id=trace.id,
            session_id=session,
            seconds=round(before + time.time() - trace.timing.agent.start, 3),
            held_seconds=0.0,
            file_bytes=0,
            origin=None if origin is None else Origin.model_validate(origin),
            unrestorable=obstacle,
        )
        self._keeping = asyncio.create_task(self._keep(self._box, place, manifest, state))
        call.before_answer += [partial(asyncio.wait, {self._keeping}), *noted]

    def _obstacle(self, trace: AnyTrace) -> str | None:
        """Say why no turn of the rollout can be restored from now on."""
        rollout = rollout_of(trace)
        servers = set() if rollout.session is None else {*rollout.session.mcp_urls} - self.kind.brought_back
        told = f"tool servers hold what is not a file of the sandbox: {', '.join(sorted(servers))}" if servers else None
        return self.kind.obstacle or rollout.outside or told

    async def _keep(self, box: SandboxAbilities, place: Path, manifest: KeptTurn, state: dict[str, Any]) -> None:
        begun = time.monotonic()
        assert self._disk is not None
        partial = self._partial(place.name)
        counted = self._disk.added if self._claim is None else self._claim.kept
        try:
            await asyncio.to_thread(_begin, partial)
            if manifest.unrestorable is None:
                manifest = await self._with_files(manifest, box, partial / FILES)
            await asyncio.to_thread(_finish, partial, place, manifest, self.kind.row, state)
            if manifest.unrestorable is None:
                self._last_files = place / FILES
            self._kept += 1
            self._held_seconds += manifest.held_seconds
            await asyncio.to_thread(counted, place, manifest.unrestorable is None)
        except Exception as error:  # noqa: BLE001 - the rollout goes on without the turn
            self._last_files = None  # it may be gone
            self._note(f"turn {manifest.turn}: {error}")
            await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
        finally:
            self._seconds += time.monotonic() - begun

    async def _with_files(self, manifest: KeptTurn, box: SandboxAbilities, folder: Path) -> KeptTurn:
        """Keep the sandbox's files; returns what the manifest says then."""
        folder.mkdir(mode=0o700)
        most = min(MOST_SECONDS, self.kind.patience / 2)
        try:
            async with asyncio.timeout(most):
                kept, held = await self._copied(box, folder)
        except NotKept as error:
            await asyncio.to_thread(shutil.rmtree, folder)
            return manifest.model_copy(update={"unrestorable": str(error)})
        except TimeoutError:
            raise NotKept(f"its files were not copied within {most:g} s") from None
        return manifest.model_copy(update={"file_bytes": kept.bytes, "held_seconds": round(held, 4)})

    async def _copied(self, box: SandboxAbilities, folder: Path) -> tuple[KeptFiles, float]:
        assert self._disk is not None
        deadline, delay = time.monotonic() + CHILDREN_SECONDS, 0.05
        while True:
            try:
                return await box.keep_files(folder, self._last_files, self._disk.most_bytes)
            except ChildrenRun:
                if time.monotonic() + delay > deadline:
                    raise
            await asyncio.sleep(delay)
            delay *= 2

    def _partial(self, name: str) -> Path:
        """A place for what is not whole yet; on a cluster none once another try has the rollout."""
        assert self._folder is not None
        return _own(self._folder, self._claim) / f".{name}"

    def _note(self, what: str) -> None:
        assert self._trace is not None
        logger.warning("rollout %s did not keep %s", self._trace.id, what)
        self._trace.info.setdefault(TURNS_RECORD, {})["not_kept"] = what[:500]

    async def _note_answer(self, call: Call, place: Path) -> None:
        """Note the stream that answered the call of a kept turn, before the agent gets it."""
        try:
            await asyncio.to_thread(_write_answer, self._partial(ANSWER_FILE), place, call.events or [])
        except OSError as error:
            logger.warning("the answer of kept turn %s was not noted: %s", place, error)

    async def agent_ended(self) -> None:
        """Keep no more; what is being kept is finished."""
        self._box = None
        if self._keeping is not None:
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None
        if self._trace is not None and self._disk is not None:
            seconds = {"turns_held_seconds": self._held_seconds, "turns_kept_seconds": self._seconds}
            rounded = {name: round(value, 4) for name, value in seconds.items()}
            self._trace.record_metrics({"turns_kept": float(self._kept), **rounded})

    def ended(self) -> None:
        """The rollout has come to its own end, and is not gone back to when this process ends."""
        if self._folder is None or not self._folder.is_dir():
            return
        try:
            self._partial(ENDED).touch(mode=0o600)
            self._partial(ENDED).rename(self._folder / ENDED)
        except OSError as error:  # the disk is full; a rollout without a lock is not gone back to either
            logger.warning("the end of %s was not noted: %s", self._folder, error)
            with suppress(OSError):  # it is another try's
                (self._folder / LOCK).rename(self._partial(LOCK))

    def close(self) -> None:
        if self._disk is not None and self._folder is not None:
            self._disk.running.discard(self._folder)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def request_digest(body: Mapping[str, Any]) -> str:
    """Return what two requests have in common that ask the same, whichever model they ask: SHA-256, in hexadecimal
    digits."""
    return hashlib.sha256(to_json({name: body.get(name) for name in ("messages", "tools")})).hexdigest()


def _own(folder: Path, claim: Claim | None) -> Path:
    return folder if claim is None else folder / claim.name


def _write_answer(partial: Path, place: Path, events: list[bytes]) -> None:
    if events and place.is_dir():  # else there was none, or the turn was not kept
        partial.write_bytes(pack(events))
        partial.rename(place / ANSWER_FILE)


def _begin(partial: Path) -> None:
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(mode=0o700)


def _finish(partial: Path, place: Path, manifest: KeptTurn, row: Mapping[str, Any], state: dict[str, Any]) -> None:
    (partial / ROW).write_text(json.dumps(row))
    (partial / TRACE).write_bytes(pack(state))
    manifest.write(partial)
    old = partial.with_suffix(".old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    partial.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def require_keepable(config: TurnsConfig, runtime: Any, harness: Any, *, confined: bool) -> None:
    """Refuse (`EnvError`) to keep turns where none could be restored."""
    if config.keep is None:
        return
    kind = runtime_kind(runtime, confined=confined)
    if kind != CONFINED and not is_ours(runtime):
        raise EnvError(f"--env.turns.keep: turns are kept of the confined local sandbox and of podman, not of {kind}")
    if not getattr(harness, "CONTINUES_TURNS", False):
        raise EnvError(f"--env.turns.keep: harness {harness.config.id!r} cannot go on from a kept turn")


def make_folder(folder: Path) -> None:
    """Make the folder for kept turns; what stands there may be taken up, so nobody else may write there. An `EnvError`
    where it cannot be made, or others may write."""
    try:
        status = private_directory(folder).stat()
    except OSError as error:
        raise EnvError(f"--env.turns.keep: {error}: name a folder that can be made and written") from None
    if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
        raise EnvError(
            f"--env.turns.keep: others may write into {folder}, and a rollout goes on from what stands there: "
            "name a folder of your own, or take their right away (chmod go-w)"
        )


def runtime_kind(runtime: Any, *, confined: bool) -> str:
    """Return what a kept turn says of its sandbox; of a container also its image, from which its files differ."""
    if isinstance(runtime, SubprocessConfig):
        return CONFINED if confined else "unconfined"
    return f"podman container of {runtime.image}" if is_ours(runtime) else str(runtime.type)


class KeptTurns(Feature):
    """Keeps turns of an environment's rollouts, and lets a rollout go on from one; all settings of the environment
    decide how."""

    def __init__(self, options: TurnsConfig, config: CliAgentEnvConfig) -> None:
        self._options, self._config = options, config
        self._disk: DiskUse | None = None
        self._since = time.time()

    def claims(self) -> Claims | None:
        """Return what tries claim that keep turns, if any are kept; what all keep has one limit."""
        if self._options.keep is None:
            return None
        folder = self._options.keep.absolute()
        return Claims(folder, DiskUse(folder, self._options.max_disk))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        if self._options.keep is not None:
            self._disk = DiskUse(self._options.keep.absolute(), self._options.max_disk)
            await asyncio.to_thread(make_folder, self._disk.folder)
        yield

    @asynccontextmanager
    async def playing(self, task: Task[Any, Any, Any], agents: Agents, rollout: Rollout) -> AsyncIterator[None]:
        """Hold the turns of a new rollout, where it has to do with any, until its end. An `EnvError` where none could
        be restored, a `TaskError` where the task names one that cannot be continued here."""
        agent, confined = agents.agent, self._config.sandbox.confine
        runtime = agent.runtime_config
        if not isinstance(runtime, SubprocessConfig):
            runtime = resolve_runtime_config(runtime, task)
        require_keepable(self._options, runtime, agent.harness, confined=confined)
        turns = await self._turns_of(task, agent, runtime_kind(runtime, confined=confined))
        if turns is None:
            yield
            return
        rollout.features.append(turns)
        if turns.continued is not None:
            rollout.before, turn = turns.continued.before, turns.continued.turn
            logger.info("rollout goes on from turn %d: task=%s kept=%s", turn.turn, task_name(task.data), turn.place)
        with closing(turns):
            yield
            turns.ended()

    async def run(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout, run: Run) -> None:
        """Run the agent in the files of a continued turn; what is said of that at the end is put on the trace."""
        turns = next((one for one in rollout.features if isinstance(one, RolloutTurns)), None)
        if turns is not None:
            await turns.provide(box)
        await run(task)
        if turns is not None and turns.continued is not None and rollout.trace is not None:
            turns.continued.finish(rollout.trace, None if rollout.sub is None else rollout.sub.trace)

    async def _turns_of(self, task: Task[Any, Any, Any], agent: Agent, kind: str) -> RolloutTurns | None:
        row: TurnRow | None = getattr(task.data, "kept_turn", None)
        claim: Claim | None = getattr(task, "claim", None)
        if row is None and self._disk is None:
            return None
        others = [seat for name, seat in agent_config_fields(self._config).items() if name != "agent"]
        known = _kind(task, agent, str(self._config.id), kind, others)
        if row is not None and not getattr(agent.harness, "CONTINUES_TURNS", False):
            raise TaskError(f"harness {agent.harness.config.id!r} cannot go on from the kept turn {row.kept_turn}")
        if self._disk is not None:
            found = await asyncio.to_thread(_claim, self._disk.folder, known, self._since, claim)
            if found is not None:
                continued, *claimed = found
                return RolloutTurns(known, self._options, self._disk, continued, claimed, claim)
        named = None if row is None else await asyncio.to_thread(Continued.named, row, known.facts.versions, kind)
        return RolloutTurns(known, self._options, self._disk, named, claim=claim)


def _kind(task: Task[Any, Any, Any], agent: Agent, env: str, kind: str, others: Sequence[AgentConfig]) -> Kind:
    harness = agent.harness.config
    installed = {name: version(name) for name in ("verifiers", "opencode-env")}
    versions = {"agent": str(getattr(harness, "version", "")), **installed}
    sampling = agent.ctx.sampling.model_dump(mode="json", exclude_none=True)
    seats = [seat.model_dump(mode="json") for seat in others]
    settings = [env, kind, versions, agent.ctx.model, sampling, harness.model_dump(mode="json"), *seats]
    keepable = "kept_turn" in type(task.data).model_fields
    facts = RolloutFacts(
        task_key=task.key,
        task_hash=task.hash,
        env=env,
        versions=versions,
        model=agent.ctx.model,
        sampling=sampling,
        runtime=kind,
        settings=hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest(),
    )
    return Kind(
        facts,
        row=task.data.model_dump(mode="json", exclude_none=True, exclude={"idx"}),
        info=getattr(task, "KEPT_INFO", ()),
        patience=float(getattr(harness, "provider_timeout", math.inf)),
        obstacle=None if keepable else f"tasks of {type(task).__name__} cannot be rows of kept turns",
        brought_back=getattr(task, "brought_back", frozenset()),
    )


def _claim(folder: Path, kind: Kind, since: float, claim: Claim | None = None) -> tuple[Continued, Path, int] | None:
    """An unfinished rollout of the same task and settings, with the lock that says that it is ours."""
    for rollout in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not _is_left(rollout, since, claim) or not _is_same(rollout, kind):
            continue
        try:
            lock = _take(rollout, claim)
        except OSError as error:  # it is another user's, or somebody still writes there
            logger.warning("the rollout in %s is not taken up: %s", rollout, error)
            continue
        if lock is None:
            continue
        if _is_left(rollout, since, claim) and (continued := _last(rollout, kind)) is not None:
            os.utime(rollout / LOCK)
            return continued, rollout, lock
        os.close(lock)
    return None


def _is_left(rollout: Path, since: float, claim: Claim | None) -> bool:
    try:
        if (rollout / ENDED).exists():
            return False
        began = (rollout / LOCK).stat().st_mtime
        return began < since if claim is None else _are_over(_marks(rollout), claim)
    except OSError:
        return False


def _take(rollout: Path, claim: Claim | None) -> int | None:
    """Become the one that writes into a rollout's folder: its lock, or None where another was first.

    The try that left it may play on, on a node that is cut off. What it writes comes into the folder from one of its
    claim's name, which is gone then. Of several that take the rollout up only one can rename that. Where there is none
    to rename, a lock decides, and where that does not cross machines, who sees another's claim beside its own leaves.
    An `OSError` says that the older claim's folder cannot be taken away.
    """
    marks = _marks(rollout)
    if not _are_over(marks, claim):
        return None
    if claim is None or not marks:
        lock = try_lock(rollout / LOCK)
        if lock is None:
            return None
        own = private_directory(_own(rollout, claim))
        if claim is not None and _marks(rollout) != [own]:
            own.rmdir()
            os.close(lock)
            return None
    else:
        own = private_directory(_own(rollout, claim))
        try:
            marks[0] = marks[0].rename(own / marks[0].name)
        except FileNotFoundError:
            own.rmdir()
            return None
        lock = try_lock(own / LOCK)  # the other may be held on its node
        (own / LOCK).rename(rollout / LOCK)
    deadline = time.monotonic() + REMOVAL_SECONDS
    for mark in marks:
        while mark.exists():  # as long as somebody writes there
            shutil.rmtree(mark, ignore_errors=True)
            if time.monotonic() > deadline and mark.exists():
                if lock is not None:
                    os.close(lock)
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(mark))
    return lock


def _marks(rollout: Path) -> list[Path]:
    return sorted(rollout.glob(f"{CLAIM}*"))


def _are_over(marks: Sequence[Path], claim: Claim | None) -> bool:
    return not any(map(driver_lives, marks)) if claim is None else all(map(claim.may_follow, marks))


def _is_same(rollout: Path, kind: Kind) -> bool:
    try:
        first = next(kept_turns(rollout), None)
    except BadInputError:
        return False
    return first is not None and (first.task_hash, first.settings) == (kind.facts.task_hash, kind.facts.settings)


def _last(rollout: Path, kind: Kind) -> Continued | None:
    """The last turn that can be continued: after a power cut the newest may not be whole."""
    for place in reversed(turn_places(rollout)):
        with suppress(BadInputError, TaskError):
            return Continued.of(read_turn(place), kind.facts.versions, kind.facts.runtime, resumed=True)
    return None

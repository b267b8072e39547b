"""Which turns a rollout keeps and which one it continues: asked once, before it has a sandbox.

A rollout continues the turn that its task names; else, where turns are kept, the last one of a rollout of the same task
and settings whose process has ended in the middle. Invariant: of those each is continued once at a time, and never one
that was begun while this process served: what was cancelled on purpose stays so.
"""

import asyncio
import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opencode_runs.command import BadInputError
from opencode_runs.turns.kept import ENDED, LOCK, RolloutFacts, TurnRow, kept_turns, read_turn, turn_places
from rollout_sandbox.file_lock import private_directory, try_lock
from rollout_sandbox.podman import is_ours
from verifiers.v1.agent import Agent
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.errors import EnvError, TaskError
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.task import Task

from opencode_env.cli_agent.turns.config import TurnsConfig
from opencode_env.cli_agent.turns.continued import Continued
from opencode_env.cli_agent.turns.disk import DiskUse
from opencode_env.cli_agent.turns.keeping import Kind, RolloutTurns

CONFINED = "confined"
"""What a kept turn of the confined local sandbox says of it."""


def require_keepable(config: TurnsConfig, runtime: Any, harness: Any, *, confined: bool) -> None:
    """Refuse to keep turns where none could be restored.

    Raises:
        EnvError: the runtime or the harness is another one.
    """
    if config.keep is None:
        return
    kind = runtime_kind(runtime, confined=confined)
    if kind != CONFINED and not is_ours(runtime):
        raise EnvError(f"--env.turns.keep: turns are kept of the confined local sandbox and of podman, not of {kind}")
    if not getattr(harness, "CONTINUES_TURNS", False):
        raise EnvError(f"--env.turns.keep: harness {harness.config.id!r} cannot go on from a kept turn")


def make_folder(folder: Path) -> None:
    """Make the folder for kept turns; what stands there may be taken up, so nobody else may write there.

    Raises:
        EnvError: it cannot be made, or others may write into it.
    """
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
    """What a kept turn says of its sandbox; of a container also its image, from which its files differ."""
    if isinstance(runtime, SubprocessConfig):
        return CONFINED if confined else "unconfined"
    return f"podman container of {runtime.image}" if is_ours(runtime) else str(runtime.type)


async def open_turns(
    task: Task[Any, Any, Any],
    agent: Agent,
    config: TurnsConfig,
    env: str,
    kind: str,
    disk: DiskUse | None,
    since: float,
    others: Sequence[AgentConfig] = (),
) -> RolloutTurns | None:
    """The turns of a new rollout; None where it has to do with none.

    Args:
        env: id of the environment.
        disk: what this process keeps; None keeps nothing.
        since: when this process began to serve, in seconds since the epoch.
        others: the other seats, whose settings decide too how the rollout goes on.

    Raises:
        TaskError: the task names a turn that cannot be continued here.
    """
    row: TurnRow | None = getattr(task.data, "kept_turn", None)
    if row is None and disk is None:
        return None
    known = _kind(task, agent, env, kind, others)
    if row is not None and not getattr(agent.harness, "CONTINUES_TURNS", False):
        raise TaskError(f"harness {agent.harness.config.id!r} cannot go on from the kept turn {row.kept_turn}")
    found = None if disk is None else await asyncio.to_thread(_claim, disk.folder, known, since)
    if found is not None:
        continued, *claimed = found
        return RolloutTurns(known, config, disk, continued, claimed)
    named = None if row is None else await asyncio.to_thread(Continued.named, row, known.facts.versions, kind)
    return RolloutTurns(known, config, disk, named)


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
    )


def _claim(folder: Path, kind: Kind, since: float) -> tuple[Continued, Path, int] | None:
    """An unfinished rollout of the same task and settings, with the lock that says that it is ours."""
    for rollout in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not _is_left(rollout, since) or not _is_same(rollout, kind) or (lock := try_lock(rollout / LOCK)) is None:
            continue
        if _is_left(rollout, since) and (continued := _last(rollout, kind)) is not None:
            os.utime(rollout / LOCK)
            return continued, rollout, lock
        os.close(lock)
    return None


def _is_left(rollout: Path, since: float) -> bool:
    try:
        return not (rollout / ENDED).exists() and (rollout / LOCK).stat().st_mtime < since
    except OSError:
        return False


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

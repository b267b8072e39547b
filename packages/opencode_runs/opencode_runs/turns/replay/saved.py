"""Saved rollouts as cassettes, and their replay; what plays them is `opencode_env.replay`."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opencode_env.replay import Replay, UnplayableError, replay
from opencode_env.scripted_model.cassette import Cassette, RecordedTrace
from pydantic import AliasPath, BaseModel, Field

from opencode_runs.traces.errors import BadInputError, NothingUsableError
from opencode_runs.traces.reading import Reading
from opencode_runs.traces.record import EpisodeRecord
from opencode_runs.traces.runs import find_trace_files

MAX_NAMED = 5


class SavedEpisode(EpisodeRecord):
    """An episode with everything that it is played by."""

    recorded: tuple[RecordedTrace, ...] = Field(validation_alias=AliasPath("traces"))
    saved_task: dict[str, Any] = Field(validation_alias=AliasPath("task"))


class Replays(BaseModel):
    replays: list[Replay]
    unplayable: dict[str, str]
    """Why rollouts could not be played, by trace id."""

    @property
    def same(self) -> bool:
        """Whether each was played and asked for exactly the same."""
        return not self.unplayable and all(one.same for one in self.replays)


def cassettes(source: Path, task: str | None = None, trace: str | None = None) -> Iterator[Cassette]:
    """The rollouts of a run as cassettes, or the one cassette that a file is.

    Args:
        source: output directory of vf-eval, or a cassette.
        task: id, name or key of the only task that is wanted.
        trace: the beginning of the only trace's id.

    Raises:
        BadInputError: it is neither.
        NothingUsableError: nothing in it is what is wanted.
    """
    if source.is_file() and source.suffix != ".jsonl":
        try:
            yield Cassette.load(source)
        except (OSError, ValueError) as error:
            raise BadInputError(str(error)) from None
        return
    (file,) = find_trace_files([source])
    config = _configuration(file.path.parent)
    named: dict[str, None] = {}
    found = False
    for _, episode in Reading.of(SavedEpisode).episodes([file]):
        named[episode.task_id or episode.task_name or episode.task or ""] = None
        if task not in (None, episode.task_id, episode.task_name, episode.task_key):
            continue
        cassette = Cassette(task=episode.saved_task, config=config, traces=episode.recorded)
        if trace is None or (cassette.main is not None and cassette.main.id.startswith(trace)):
            found = True
            yield cassette
    if not found:
        tasks = ", ".join(list(named)[:MAX_NAMED]) + (", …" if len(named) > MAX_NAMED else "")
        raise NothingUsableError(f'"{source}" holds no such rollout; its tasks: {tasks or "none"}')


def _configuration(run: Path) -> dict[str, Any]:
    """What a replay needs of a run's saved configuration; it does not keep turns again."""
    files = sorted((run / "configs" / "resolved").glob("*.json"))
    if not files:
        raise BadInputError(f'run "{run}" has no configuration (configs/resolved/*.json): it is not one of vf-eval')
    try:
        saved = json.loads(files[0].read_bytes())
        env = {name: value for name, value in saved["env"].items() if name != "turns"}
        return {"env": env, "model": saved["model"], "sampling": saved["sampling"]}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise BadInputError(f'configuration "{files[0]}" cannot be read: {error}') from None


def replay_all(source: Path, task: str | None, trace: str | None, opencode: str | None, pin: bool) -> Replays:
    """Replay what `cassettes` finds, one after the other."""
    answer = Replays(replays=[], unplayable={})
    for cassette in list(cassettes(source, task, trace)):
        try:
            answer.replays.append(asyncio.run(replay(cassette, opencode=opencode, pin=pin)))
        except UnplayableError as error:
            answer.unplayable[cassette.main.id if cassette.main is not None else ""] = str(error)
    return answer


def replays_text(answer: Replays) -> str:
    """What came of each replay: the first difference, and how many follow."""
    lines = [line for one in answer.replays for line in _lines(one)]
    lines += [f"{trace[:12]}  not played: {why}" for trace, why in answer.unplayable.items()]
    return "\n".join(lines)


def _lines(one: Replay) -> Iterator[str]:
    versions = dict.fromkeys(version for version in (one.recorded_opencode, one.opencode) if version)
    head = f"{one.trace[:12]}  {one.task}  OpenCode {' -> '.join(versions)}  {one.turns} turns"
    if one.replaced:
        head += f", {one.replaced} tool results put in"
    if one.same:
        yield f"{head}: the same"
    elif one.differences:
        more = f" (and {len(one.differences) - 1} later)" if len(one.differences) > 1 else ""
        yield f"{head}: differs at {one.differences[0]}{more}"
    else:
        yield f"{head}: failed"
    if one.error is not None:
        yield f"    the replay failed: {one.error}"
    if one.reward != one.recorded_reward:
        yield f"    reward {one.recorded_reward} -> {one.reward}"


def one_cassette(source: Path, task: str | None, trace: str | None) -> Cassette:
    """The only rollout that is wanted.

    Raises:
        BadInputError: there are several.
    """
    found: Sequence[Cassette] = list(cassettes(source, task, trace))
    if len(found) > 1:
        named = ", ".join(f"{one.main.id[:12]} ({one.task.get('key')})" for one in found[:MAX_NAMED] if one.main)
        raise BadInputError(f"{len(found)} rollouts fit: name one with --task or --trace ({named})")
    return found[0]

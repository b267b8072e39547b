"""Rollouts out of a run: trajectories for Harbor, and one rollout as Markdown."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from opencode_runs.report.atif import plain_text, trajectories
from opencode_runs.report.cleaning import Cutter, as_json
from opencode_runs.report.masking import Masker
from opencode_runs.report.places import find_runs
from opencode_runs.report.record import ShownEpisode, ShownTrace
from opencode_runs.traces.errors import BadInputError, NothingUsableError
from opencode_runs.traces.reading import Reading

RESULT = 3000
"""Characters of a text in Markdown."""


def export_atif(paths: list[Path], folder: Path) -> int:
    """Write each trace's trajectories as files of `folder`, named by the trace's id and branch; how many they are.

    Raises:
        BadInputError: a path is not a run, or the folder cannot be written to.
        NothingUsableError: the runs hold no conversation.
    """
    written = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for episode in _episodes(paths):
            for trace in episode.traces:
                for found in trajectories(episode, trace):
                    text = Masker().json(as_json(found))
                    name = re.sub(r"[^\w.-]", "_", str(found["trajectory_id"]))[-120:]
                    (folder / f"{name}.json").write_bytes(text + b"\n")
                    written += 1
    except OSError as error:
        raise BadInputError(f'cannot write to "{folder}": {error.strerror or error}') from None
    if not written:
        raise NothingUsableError("the runs hold no conversation")
    return written


def print_markdown(paths: list[Path], wanted: str) -> None:
    """Print the rollout whose trace's or episode's id begins with `wanted`.

    Raises:
        NothingUsableError: no rollout has that id.
    """
    for episode in _episodes(paths):
        for trace in episode.traces:
            if wanted and (trace.id.startswith(wanted) or episode.id.startswith(wanted)):
                sys.stdout.buffer.write(markdown(episode, trace).encode("utf-8", "replace"))
                sys.stdout.flush()
                return
    raise NothingUsableError(f"no rollout's id begins with {wanted!r}")


def markdown(episode: ShownEpisode, trace: ShownTrace) -> str:
    """A rollout for an issue or a chat: the first branch's messages, long ones cut, keys masked."""
    masker = Masker()

    def cut(text: str) -> str:
        return str(Cutter(masker, RESULT).cut(text))

    rewards = ", ".join(
        f"{name} {reward.score:g}" for name, reward in trace.rewards.items() if reward and reward.score is not None
    )
    facts = {
        "reward": "none" if trace.reward is None else f"{trace.reward:g} ({rewards})", "stop": trace.stop_condition,
        "model": trace.model, "turns": trace.turns, "tokens": trace.num_total_tokens,
        "errors": ", ".join(error.type for error in trace.errors), "trace": trace.id,
    }  # fmt: skip
    parts = [f"# {cut(str(episode.task_id or episode.task_name or episode.prompt or episode.task))}"]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts.items() if value not in (None, "")))
    for node in trace.nodes:
        message = node.message if isinstance(node.message, dict) else {}
        role, text = message.get("role", "unknown"), cut(plain_text(message.get("content")))
        if role == "system":
            continue
        parts.append(f"### {role}{' ' + str(message['name']) if message.get('name') else ''}")
        if text:
            parts.append(_fenced(text) if role == "tool" else text)
        calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
        parts += [f"**{call.get('name')}**\n{_fenced(cut(plain_text(call.get('arguments'))))}" for call in calls]
    return masker.text("\n\n".join(parts)) + "\n"


def _fenced(text: str) -> str:
    """Text in a fence that it cannot close."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 3)
    return f"{fence}\n{text}\n{fence}"


def _episodes(paths: list[Path]) -> Iterator[ShownEpisode]:
    reading = Reading.of(ShownEpisode)
    for _, episode in reading.episodes([run.file for run in find_runs(paths)]):
        yield episode

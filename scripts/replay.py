"""Plays recorded rollouts to another OpenCode: recorded answers, tools run again; names where it asks for other things.

Same environment and task. No model is asked, and nothing of the recorded rollout but its answers (with `--pin` its tool
results too) reaches the new one. The exit code is 0 when all were the same, 1 when one differs or could not be played,
2 for wrong input.

python scripts/replay.py outputs/my-run --opencode 1.18.34 --pin
python scripts/replay.py outputs/my-run --task fix-median -o median.json   # one rollout as one file, a cassette
python scripts/replay.py median.json
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env.scripted_model import Cassette, CassettePolicy, Difference, ScriptedModel
from opencode_runs.command import BadInputError, NothingUsableError, Parser, exit_code_of, say
from opencode_runs.traces.reading import Reading, find_trace_files, lines_of, saved_config
from verifiers.v1.cli.resolve import narrow_config
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.env import RunSlot
from verifiers.v1.types import Request, TextContentPart, ToolMessage
from verifiers.v1.utils.loaders import load_environment, load_taskset

MAX_NAMED = 5
CUT_BEYOND = 20_000
"""verifiers cuts a text that a hook puts in a result's place beyond so many bytes; a part of text it leaves whole."""


@dataclass(frozen=True)
class Replay:
    """What came of one replay."""

    cassette: Cassette
    opencode: str | None
    """The version that was played to; None where no agent ran."""
    turns: int
    """Requests that were answered from the recording."""
    differences: list[Difference]
    """The first is what to look at; later ones may follow from it."""
    replaced: int
    """Tool results that were not as recorded, and for which the recorded ones were put in; with `pin` only."""
    reward: float | None
    error: str | None
    """What ended the new rollout, if it failed."""

    @property
    def same(self) -> bool:
        """Whether the new agent asked for exactly the same and did not fail."""
        return not self.differences and self.error is None

    def __str__(self) -> str:
        recorded = self.cassette.main
        assert recorded is not None
        versions = dict.fromkeys(version for version in (recorded.opencode, self.opencode) if version)
        key = self.cassette.task.get("key")
        text = f"{recorded.id[:12]}  {key}  OpenCode {' -> '.join(versions)}  {self.turns} turns"
        if self.replaced:
            text += f", {self.replaced} tool results put in"
        if self.same:
            text += ": the same"
        elif self.differences:
            more = f" (and {len(self.differences) - 1} later)" if len(self.differences) > 1 else ""
            text += f": differs at {self.differences[0]}{more}"
        else:
            text += ": failed"
        if self.error is not None:
            text += f"\n    the replay failed: {self.error}"
        return text if self.reward == recorded.reward else f"{text}\n    reward {recorded.reward} -> {self.reward}"


class UnplayableError(ValueError):
    """A cassette that cannot be played here; the message says why."""


def cassettes(source: Path, task: str | None, trace: str | None) -> Iterator[Cassette]:
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
    config = configuration(file.path)
    named: dict[str, None] = {}
    found = False
    reading = Reading(lines_of)
    for _, episode in reading.episodes([file]):
        named[episode.task_id or episode.task_name or episode.task or ""] = None
        if task not in (None, episode.task_id, episode.task_name, episode.task_key):
            continue
        with file.path.open("rb") as lines:
            lines.seek(reading.place[0])
            saved = json.loads(lines.readline())
        try:
            cassette = Cassette.model_validate({"task": saved["task"], "config": config, "traces": saved["traces"]})
        except ValueError as error:
            raise BadInputError(f'rollout {episode.id} of "{source}" cannot be played: {error}') from None
        if trace is None or (cassette.main is not None and cassette.main.id.startswith(trace)):
            found = True
            yield cassette
    if not found:
        tasks = ", ".join(list(named)[:MAX_NAMED]) + (", …" if len(named) > MAX_NAMED else "")
        raise NothingUsableError(f'"{source}" holds no such rollout; its tasks: {tasks or "none"}')


def configuration(trace_file: Path) -> dict[str, Any]:
    """What a replay needs of a run's saved configuration; it does not keep turns again."""
    file = saved_config(trace_file)
    if file is None:
        raise BadInputError(f'run "{trace_file.parent}" has no configuration (configs/resolved/*.json)')
    try:
        saved = json.loads(file.read_bytes())
        env = {name: value for name, value in saved["env"].items() if name != "turns"}
        return {"env": env, "model": saved["model"], "sampling": saved["sampling"]}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise BadInputError(f'configuration "{file}" cannot be read: {error}') from None


async def replay(cassette: Cassette, *, opencode: str | None = None, pin: bool = False) -> Replay:
    """Play a cassette once.

    Args:
        opencode: another release of OpenCode than the recorded one.
        pin: whether recorded tool results stand in the place of the new ones.

    Raises:
        UnplayableError: it was continued from a kept turn, or its task or configuration cannot be read any more.
    """
    recorded = cassette.main
    if recorded is None or not any(True for _ in cassette.answers()):
        raise UnplayableError("no answer of a model was recorded")
    if recorded.branch is not None and not recorded.branch.get("resumed"):
        raise UnplayableError("it goes on from a kept turn: replay the rollout that the turn is of")
    config = eval_config(cassette, opencode)
    task = task_of(cassette, config)
    replaced: set[tuple[str, int]] = set()
    if pin:
        task = pinned(task, cassette.tool_results(), replaced)
    env = load_environment(config.env)
    policy = CassettePolicy(cassette)
    async with ScriptedModel(policy, record=False) as model:
        client = EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        async with env.serving():
            context = ModelContext(client=client, model=config.model, sampling=config.sampling)
            episode = await env.run_slot(RunSlot(task), context)
    trace = next((one for one in episode.traces if one.agent.name == "agent"), None)
    errors = [*episode.errors, *([] if trace is None else trace.errors)]
    return Replay(
        cassette=cassette,
        opencode=None if trace is None else trace.info.get("agent", {}).get("version"),
        turns=policy.asked,
        differences=policy.all_differences(),
        replaced=len(replaced),
        reward=trace.reward if trace is not None and trace.rewards and trace.ok else None,
        error=f"{errors[-1].type}: {errors[-1].message}" if errors else None,
    )


def eval_config(cassette: Cassette, opencode: str | None) -> EvalConfig:
    """The run's configuration, each of its seats behind the one endpoint and tried once."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "eval.json"
            file.write_text(json.dumps(cassette.config))
            kind = narrow_config(EvalConfig, ["@", str(file)])
        config = kind.model_validate(cassette.config)
    except (ValueError, ImportError) as error:
        raise UnplayableError(f"the run's configuration cannot be read: {error}") from error
    config.env.retries.max_retries = 0
    config.env.retries.rules = []
    for name in type(config.env).model_fields:
        seat = getattr(config.env, name)
        if isinstance(seat, AgentConfig):
            seat.client, seat.retries.max_retries, seat.retries.rules = None, 0, []
    if opencode is not None:
        harness: Any = config.env.agent.harness  # type: ignore[attr-defined]
        harness.version = opencode
    return config


def task_of(cassette: Cassette, config: EvalConfig) -> vf.Task[Any, Any, Any]:
    """The recorded task, made of its data."""
    taskset = config.env.taskset
    kind = vf.task_type(taskset.id)
    try:
        task: vf.Task[Any, Any, Any] = kind(kind.data_type().model_validate(cassette.task["data"]), config=taskset.task)
        if not getattr(task.data, "shortened", False):
            return task
        whole: vf.Task[Any, Any, Any]
        for whole in load_taskset(taskset):
            if whole.data.model_copy(update={"idx": task.data.idx}).recorded() == task.data:
                return whole
    except (ValueError, KeyError) as error:
        raise UnplayableError(f"the task cannot be read: {error}") from error
    raise UnplayableError("the trace has the task's files by their digest alone, and the run's dataset has them not")


def pinned(
    task: vf.Task[Any, Any, Any], recorded: Mapping[str, list[Any]], replaced: set[tuple[str, int]]
) -> vf.Task[Any, Any, Any]:
    """The task with a hook that puts recorded tool results in the place of the new ones.

    What was not as recorded goes to `replaced`, by call and number; each comes with every later request.
    """

    def pin_results(_task: object, request: Request) -> Request:
        seen: dict[str, int] = {}
        messages = list(request.messages)
        for place, message in enumerate(messages):
            # verifiers asks about a call before it is run, with an empty result that has the name of its tool.
            if isinstance(message, ToolMessage) and (message.content or message.name is None):
                number = seen[message.tool_call_id] = seen.get(message.tool_call_id, -1) + 1
                results = recorded.get(message.tool_call_id, [])
                if number < len(results) and message.content != results[number]:
                    replaced.add((message.tool_call_id, number))
                    result = results[number]
                    if isinstance(result, str) and len(result.encode()) > CUT_BEYOND:
                        result = [TextContentPart(text=result)]
                    messages[place] = ToolMessage.model_validate({**message.model_dump(), "content": result})
        return request.model_copy(update={"messages": messages})

    # verifiers looks for hooks on a task's class alone.
    kind = type(task)
    made = type(kind.__name__, (kind,), {"pin_results": vf.intercept(pin_results), "__module__": kind.__module__})
    changed: vf.Task[Any, Any, Any] = made(task.data, config=task.config)
    return changed


def run(options: argparse.Namespace) -> None:
    """Play what is wanted, or write it.

    Raises:
        BadInputError: there is no such run, or several rollouts would be written to one file.
        NothingUsableError: not every rollout was played and the same.
    """
    found = list(cassettes(options.run, options.task, options.trace))
    if options.output is not None:
        if len(found) > 1:
            named = ", ".join(f"{one.main.id[:12]} ({one.task.get('key')})" for one in found[:MAX_NAMED] if one.main)
            raise BadInputError(f"{len(found)} rollouts fit: name one with --task or --trace ({named})")
        found[0].save(options.output)
        return
    same = True
    for cassette in found:
        try:
            played = asyncio.run(replay(cassette, opencode=options.opencode, pin=options.pin))
        except UnplayableError as error:
            say(f"{cassette.main.id[:12] if cassette.main else ''}  not played: {error}")
            same = False
        else:
            say(str(played))
            same = same and played.same
    if not same:
        raise NothingUsableError("not every rollout was played and the same")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = Parser(prog="replay.py", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="output directory of vf-eval, or a cassette")
    parser.add_argument("--task", metavar="ID", help="only the task with this id, name or key")
    parser.add_argument("--trace", metavar="ID", help="only the trace whose id begins so")
    parser.add_argument("--opencode", metavar="VERSION", help="release to play to (default: the recorded one)")
    parser.add_argument("--pin", action="store_true", help="put recorded tool results in the place of the new ones")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the one rollout there, play nothing")
    options = parser.parse_args(arguments)
    return exit_code_of("replay.py", lambda: run(options))


if __name__ == "__main__":
    raise SystemExit(main())

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
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import verifiers.v1 as vf
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel, ToolCall, Usage
from opencode_env.scripted_model.policy import ChatMessage
from opencode_runs.console_command import Parser, exit_code_of, say
from opencode_runs.errors import BadInputError, NothingUsableError
from opencode_runs.traces.reading import TraceReader, find_trace_files, lines_of, saved_config
from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError
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


_BEFORE, _BEHIND = 20, 60
"""Characters that are shown around a difference."""


class _Recorded(BaseModel):
    """A part of a saved trace; what it does not name is left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class RecordedNode(_Recorded):
    """One message of a trace's graph."""

    parent: int | None = None
    message: dict[str, Any]
    tools: list[dict[str, Any]] | None = None
    """What was offered, on the first message of a conversation."""

    @property
    def role(self) -> str:
        return str(self.message.get("role"))

    @cached_property
    def as_sent(self) -> ChatMessage:
        """The message as a request holds it."""
        calls = [{"id": call["id"], "function": call} for call in self.message.get("tool_calls") or ()]
        return ChatMessage.model_validate({**self.message, "tool_calls": calls or None})


class RecordedUsage(_Recorded):
    """Tokens of a call, as the endpoint counted them."""

    prompt_tokens: int = 0
    cached_input_tokens: int | None = None
    completion_tokens: int = 0


class RecordedCall(_Recorded):
    """One model call; `node` is its answer, None where there is none."""

    node: int | None = None
    finish_reason: str | None = None
    usage: RecordedUsage | None = None


class RecordedTrace(_Recorded):
    """What of a trace is needed to play it."""

    id: str = ""
    seat: str = Field("agent", validation_alias=AliasPath("agent", "name"))
    nodes: tuple[RecordedNode, ...] = ()
    calls: tuple[RecordedCall, ...] = ()
    opencode: str | None = Field(None, validation_alias=AliasPath("info", "agent", "version"))
    branch: dict[str, Any] | None = Field(None, validation_alias=AliasPath("info", "branch"))
    """The kept turn that it goes on from; it does not play from its beginning."""
    rewards: dict[str, dict[str, Any] | None] = Field(default_factory=dict)

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    def before(self, node: int) -> list[int]:
        """The messages before one, from the conversation's first on."""
        path: list[int] = []
        here = self.nodes[node].parent
        while here is not None:
            path.append(here)
            here = self.nodes[here].parent
        return path[::-1]

    @property
    def reward(self) -> float | None:
        """The weighted sum of its rewards; None where one is missing."""
        total = 0.0
        for one in self.rewards.values():
            if one is None or one.get("score") is None:
                return None
            total += one["score"] * one.get("weight", 1.0)
        return total if self.rewards else None


@dataclass(frozen=True)
class Difference:
    """Where a request parts from the recorded one."""

    seat: str
    turn: int
    """Of its conversation, from 1."""
    how: str
    message: int | None = None
    """From 1; None where it is not a message."""
    role: str | None = None

    def __str__(self) -> str:
        place = "" if self.message is None else f", message {self.message} ({self.role})"
        return f"turn {self.turn}{'' if self.seat == 'agent' else f' of {self.seat}'}{place}: {self.how}"


class _Answer:
    """A recorded answer with the request that it belongs to."""

    def __init__(self, trace: RecordedTrace, call: RecordedCall, node: int) -> None:
        self.seat, self._call = trace.seat, call
        self.message = trace.nodes[node].as_sent
        self.request = [trace.nodes[one] for one in trace.before(node)]

    @property
    def key(self) -> tuple[str, int]:
        """What finds it: the conversation, and how many answers come before it."""
        first = next((one.as_sent.text for one in self.request if one.role == "user"), "")
        return first, sum(one.role == "assistant" for one in self.request)

    def reply(self) -> Reply:
        """The answer, to be sent again."""
        calls = tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in self.message.tool_calls or ()
        )
        usage = None
        if (used := self._call.usage) is not None:
            sent = used.prompt_tokens + (used.cached_input_tokens or 0)
            usage = Usage(prompt_tokens=sent, completion_tokens=used.completion_tokens)
        return Reply(
            text=self.message.text,
            reasoning=self.message.reasoning_content or "",
            tool_calls=calls,
            finish_reason=self._call.finish_reason,
            usage=usage,
        )

    def difference(self, request: ChatRequest, known: set[int]) -> Difference | None:
        """What a request has in another way than the recorded one; None for nothing that is not `known`: ids of the
        recorded messages that were different in an earlier request; what is found goes there."""
        turn = self.key[1] + 1
        old, new = [one.as_sent for one in self.request], request.body.messages
        other = (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if _content(a) != _content(b))
        shared = next((at for at in other if id(self.request[at]) not in known), None)
        if shared is None and len(old) != len(new):
            shared = min(len(old), len(new))
        if shared is not None:
            known.update(id(one) for one in self.request[shared : shared + 1])
            called = {call.id: call.function.name for one in old for call in one.tool_calls or ()}
            how = _how(old[shared:], new[shared:], called)
            role = new[shared].role if shared < len(new) else old[shared].role
            return Difference(seat=self.seat, turn=turn, message=shared + 1, role=role, how=how)
        offered = self.request[0].tools if self.request else None
        tools = _other_tools(offered or [], request)
        return Difference(seat=self.seat, turn=turn, how=tools) if tools else None


class Cassette(_Recorded):
    """One rollout in one file: what was answered and asked, its task, and how its environment was configured."""

    format: Literal[1] = 1
    task: dict[str, Any]
    """As the episode has it: `type`, `key`, `hash` and `data`."""
    config: dict[str, Any]
    """`env`, `model` and `sampling` of the run's configuration."""
    traces: tuple[RecordedTrace, ...]
    """Of all seats."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read one.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a cassette.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise ValueError(f"{path} is not a cassette: {where}: {first['msg']}") from error

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            OSError: it cannot be written.
        """
        path.write_text(self.model_dump_json(indent=1, exclude_defaults=True) + "\n")

    @property
    def main(self) -> RecordedTrace | None:
        """The agent's own trace."""
        return next((trace for trace in self.traces if trace.seat == "agent"), None)

    def answers(self) -> Iterator[_Answer]:
        """The recorded answers, in the order in which they came."""
        for trace in self.traces:
            for call in trace.calls:
                if call.node is not None:
                    yield _Answer(trace, call, call.node)

    def tool_results(self) -> dict[str, list[Any]]:
        """The contents of the agent's tool results, by call id in their order."""
        found: dict[str, list[Any]] = {}
        for node in () if self.main is None else self.main.nodes:
            if node.role == "tool":
                found.setdefault(node.message["tool_call_id"], []).append(node.message["content"])
        return found


class CassettePolicy:
    """Plays a cassette, and keeps where the requests differ from the recorded ones.

    An answer is found from its request alone: the conversation, by its first user message, and how many answers stand
    in it. So sub calls and parallel calls play as well, and a request that is sent again gets its answer again. After a
    difference the recorded answers go on by their number, so that later ones show what follows from it.
    """

    def __init__(self, cassette: Cassette) -> None:
        self._waiting: dict[tuple[str, int], list[_Answer]] = {}
        self._main: dict[int, _Answer] = {}
        """The answers of the agent's first conversation, for one that begins in another way."""
        self._played: dict[str, Reply] = {}
        self.asked = 0
        """Requests that were answered, each once."""
        self.differences: list[Difference] = []
        """In the order in which the requests came; a message that differs is named once."""
        self._known: set[int] = set()
        for answer in cassette.answers():
            if answer.seat == "agent":
                self._main.setdefault(answer.key[1], answer)
            self._waiting.setdefault(answer.key, []).append(answer)

    def __call__(self, request: ChatRequest, /) -> Reply:
        if request.call_key not in self._played:
            self.asked += 1
            self._played[request.call_key] = self._answer(request)
        return self._played[request.call_key]

    def _answer(self, request: ChatRequest) -> Reply:
        number = sum(1 for _ in request.assistant_messages())
        waiting = self._waiting.get((request.prompt, number))
        answer = waiting.pop(0) if waiting else None
        if answer is None and not any(first == request.prompt for first, _ in self._waiting):
            answer = self._main.pop(number, None)
        if answer is None:
            how = "the agent asks once more; the recording holds no such request"
            self.differences.append(Difference(seat="agent", turn=number + 1, how=how))
            return Reply(text="I am a scripted model; the recording holds no answer to this request.")
        self._main = {place: one for place, one in self._main.items() if one is not answer}
        if (found := answer.difference(request, self._known)) is not None:
            self.differences.append(found)
        return answer.reply()

    def all_differences(self) -> list[Difference]:
        """The differences, and behind them what was never asked; for when the agent has ended."""
        left = [one for waiting in self._waiting.values() for one in waiting]
        if self.differences or not left:
            return list(self.differences)
        first = min(left, key=lambda one: one.key[1])
        how = f"the agent did not ask again; {len(left)} recorded answers were not played"
        return [Difference(seat=first.seat, turn=first.key[1] + 1, how=how)]


def _content(message: ChatMessage) -> tuple[Any, ...]:
    """Everything of a message that counts."""
    kinds = [part.type for part in message.content] if isinstance(message.content, tuple) else []
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    # A picture's own bytes are not compared: the data set's or the tool's text beside it names it.
    pictures = [kind for kind in kinds if kind != "text"]
    return message.role, message.text, message.reasoning_content or "", calls, message.tool_call_id, pictures


def _how(old: Sequence[ChatMessage], new: Sequence[ChatMessage], tools: dict[str, str]) -> str:
    if not new:
        return f"the request ends here; the recorded one goes on with a message of role {old[0].role}"
    if not old:
        return f"the recorded request ends here; this one goes on with a message of role {new[0].role}"
    was, now = old[0], new[0]
    if was.role != now.role:
        return f"a message of role {now.role} stands where one of role {was.role} stood"
    about = f"result of {tools.get(now.tool_call_id or '', 'a tool')}: " if now.role == "tool" else ""
    for one, other in zip(_content(was)[1:], _content(now)[1:], strict=True):
        if one != other:
            return about + _texts(*(value if isinstance(value, str) else repr(value) for value in (one, other)))
    raise AssertionError("the messages are the same")


def _other_tools(recorded: list[dict[str, Any]], request: ChatRequest) -> str | None:
    old = {tool["name"]: (tool.get("description") or "", tool.get("parameters") or {}) for tool in recorded}
    functions = [tool.function for tool in request.body.tools or ()]
    new = {one.name: (one.description, dict(one.parameters or {})) for one in functions}
    for name in {**old, **new}:
        if name not in new:
            return f"the tool {name} is not offered any more"
        if name not in old:
            return f"the tool {name} was not offered"
        if old[name] != new[name]:
            return f"the tool {name} is described in another way: {_texts(repr(old[name]), repr(new[name]))}"
    return None


def _texts(old: str, new: str) -> str:
    """Both texts around the first place where they differ."""
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - _BEFORE)
    was, now = (repr(text[start : start + _BEFORE + _BEHIND]) for text in (old, new))
    return f"{now} stands where {was} stood (from character {start})"


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
    (file,) = find_trace_files([source], "eval")
    config = configuration(file.path)
    named: dict[str, None] = {}
    found = False
    reading = TraceReader(lines_of)
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

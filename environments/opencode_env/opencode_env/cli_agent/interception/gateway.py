"""One rollout's gateway to the model, and one call through it: the state that all steps of `path.py` share, and what
may pass: the requests that a harness sends (`ModelRequests`), and no key of an endpoint to an agent (`Masking`).

A harness that knows better what it sends says so with a `model_requests()` on its configuration. Lists of keys hold
what agents send; nothing that makes an endpoint fetch, run or remember something, route elsewhere, or sample otherwise
than the seat says.

A request that is refused here was never a model call: it is counted on the trace, costs the rollout nothing but time,
and makes no error of it.
"""

import asyncio
import logging
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import httpx
from aiohttp import web
from pydantic import Field, FiniteFloat
from pydantic_config import BaseConfig
from rollout_sandbox.compat import error_body
from verifiers.v1.agent import Agent
from verifiers.v1.configs.client import BaseClientConfig, resolve_api_key, resolve_headers
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects import Dialect
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import ModelCall
from verifiers.v1.types import Response, Tool

from opencode_env.agents.named import TRANSPORTS
from opencode_env.cli_agent.interception.call_limits import MAX_TRACE, BodyMemory, CpuBudget, MainCalls, TraceBytes
from opencode_env.cli_agent.interception.callers import (
    AgentProgram,
    Caller,
    ProgramLoad,
    SubRollout,
    SummarySession,
)
from opencode_env.cli_agent.interception.conversations import FixedPrompts, RequestKey, Summaries
from opencode_env.cli_agent.interception.history import History, MessageKey, echo_rules
from opencode_env.cli_agent.interception.tunnel import OpenTunnel
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.errors import RequestRefused

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

GATEWAY_RECORD = "gateway"
"""Key in the main trace's `info` with what was refused and left out, by reason; absent when nothing was."""

LAST_REFUSED = "last_refused"
"""Key in that record with why the newest main request was refused; absent when it was not."""

UNUSABLE = "unusable"
"""Key in that record: the newest failed call got something else than an answer; absent when it did not."""

REPEATED, PARTIAL = "repeated", "ghosts"
"""Keys in that record with counts: calls that were sent again and not sampled again, and dropped partial answers."""

_BODIES_HELD = 4
"""Largest bodies that one rollout may have in memory at once."""


class GatewayConfig(BaseConfig):
    """Limits what one rollout may ask of the path to the model, far above what an agent's own calls amount to."""

    max_body: int = Field(32 * 1024 * 1024, ge=1)
    """Bytes of one request, unpacked; more is answered 413."""
    max_parallel_calls: int = Field(16, ge=1)
    """Main calls that one rollout has at the model at once; more wait in the order in which they came. Every call
    reserves its share of a turn limit and a token budget before it is served, so a limit of the seat holds for parallel
    calls too."""
    max_trace: int = Field(256 * 1024 * 1024, ge=1)
    """Bytes that the calls of one rollout may leave on its traces; when they have, it is stopped (`max_trace`) and
    scored. Sub calls count, and are refused then."""
    answer_after: FiniteFloat = Field(15.0, gt=0)
    """Seconds after which a streamed call from a remote sandbox whose model still thinks is answered with a comment
    line, and with another every 3 s, so that no proxy takes its connection for idle. Until then a failure keeps its
    HTTP status. A call that is not streamed cannot be kept alive; the agents here make none. One value for
    all environments of a process, the last that started; local sandboxes keep verifiers' own, 60 s."""
    probe: FiniteFloat | None = Field(5.0, gt=0)
    """Seconds between two health checks that a server makes of itself through its tunnel or own URL. A tunnel that is
    dead is found by them: its rollouts end with a `TunnelError`, and new ones get a new one. None makes none."""
    filter_requests: bool = True
    """Let through only the harness's own wire formats, request keys and headers, and no address that the endpoint would
    fetch."""
    ask_streamed: bool = True
    """Ask a chat endpoint for a stream where the agent asks for one. False asks for the whole answer at once, for an
    endpoint that does not stream, or whose streams lack log-probabilities; the agent gets a stream either way."""


CHAT, RESPONSES, MESSAGES = "/chat/completions", "/responses", "/v1/messages"
"""The wire formats, by the path that a request takes upstream (`Dialect.upstream_path`)."""

_COMMON = {"model", "tools", "tool_choice", "stream", "temperature", "top_p"}
KEYS = {
    CHAT: frozenset(
        _COMMON
        | {"messages", "parallel_tool_calls", "stream_options", "max_tokens", "max_completion_tokens", "stop", "seed"}
        | {"frequency_penalty", "presence_penalty", "response_format", "reasoning_effort", "reasoning", "verbosity"}
        | {"thinking", "enable_thinking", "prompt_cache_key", "store", "user"}
    ),
    RESPONSES: frozenset(
        _COMMON
        | {"input", "instructions", "parallel_tool_calls", "stream_options", "max_output_tokens", "reasoning", "text"}
        | {"include", "store", "truncation", "prompt_cache_key", "client_metadata", "user"}
    ),
    MESSAGES: frozenset(
        _COMMON
        | {"messages", "system", "max_tokens", "top_k", "stop_sequences", "thinking", "metadata", "output_config"}
        | {"context_management", "cache_control"}
    ),
}
"""Top-level keys of a request that go upstream, by wire format."""

CHAT_MESSAGE_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "reasoning_details"}
    | {"refusal", "function_call", "cache_control"}
)
"""Keys of a chat message that go upstream."""

HEADERS = {
    CHAT: frozenset[str](),
    RESPONSES: frozenset({"openai-beta"}),
    MESSAGES: frozenset({"anthropic-beta", "anthropic-version"}),
}
"""Headers that ask for a wire format's features, by wire format."""

_TRANSPORTS = {"chat_completions": CHAT, "responses": RESPONSES, "anthropic_messages": MESSAGES}


@dataclass(frozen=True)
class ModelRequests:
    """Holds what a harness sends to the model endpoint."""

    formats: frozenset[str] = frozenset()
    """Wire formats, as upstream paths; empty = the one of the rollout's first call."""
    extra: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Further keys, each with the values that the user configured."""
    message_keys: frozenset[str] = frozenset()
    """Further keys of chat messages."""
    headers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Further headers by lower-case name, each with the values that the user configured."""

    def passes(self, key: str, value: Any) -> bool:
        """Whether the user configured this value for a key that no list holds."""
        return key in self.extra and _covered(value, self.extra[key])


def _covered(value: Any, configured: tuple[Any, ...]) -> bool:
    """Whether a value is a configured one, or an object merged of several."""
    if any(type(value) is type(one) and value == one for one in configured):
        return True
    if not isinstance(value, dict):
        return False
    parts = [one for one in configured if isinstance(one, Mapping)]
    return bool(parts) and all(_covered(v, tuple(one[k] for one in parts if k in one)) for k, v in value.items())


def model_requests(config: HarnessConfig | None) -> ModelRequests:
    """Return what the harness of a configuration sends."""
    own = getattr(config, "model_requests", None)
    if own is not None:
        found: ModelRequests = own()
        return found
    choice = getattr(config, "transport", None) or getattr(config, "dialect", None)
    name = (config.id if config is not None else "").replace("-", "_")
    wire_format = _TRANSPORTS.get(str(choice)) or _TRANSPORTS.get(TRANSPORTS.get(name, ""))
    return ModelRequests(frozenset({wire_format}) if wire_format else frozenset())


_MASK = "[key]"
_SHORTEST = 12
"""Characters; shorter values are words such as `EMPTY`, which answers may hold."""

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|AUTHORIZATION|COOKIE)$")
_TEXT = re.compile(
    rb'"(content|reasoning_content|reasoning|refusal|text|delta|thinking|name|arguments|partial_json)"\s*:\s*"'
)
_STRING_END = re.compile(rb'(?:[^"\\]|\\.)*')


def keys_of(config: BaseClientConfig) -> frozenset[str]:
    """Return what must not reach an agent: the endpoint's key, secret headers and what its URL holds of that kind,
    every key in this process's environment."""
    url = httpx.URL(config.base_url)
    named = {**os.environ, **resolve_headers(config), **url.params, "PASSWORD": url.password}
    found = {value.removeprefix("Bearer ") for name, value in named.items() if _SECRET_NAME.search(name.upper())}
    found |= {resolve_api_key(config), *(os.environ.get(name, "") for name in config.headers_from_env.values())}
    return frozenset(key for key in found if len(key) >= _SHORTEST and not re.search(r"\s", key))


class Masking:
    """Takes API keys out of answers, streams and texts of errors: some endpoints repeat the key that they were called
    with."""

    def __init__(self, keys: Iterable[str]) -> None:
        longest_first = [re.escape(key) for key in sorted(keys, key=len, reverse=True)]
        pattern = "|".join(longest_first) or r"(?!)"
        self._text = re.compile(pattern)
        # JSON may write a slash with a backslash before it.
        self._bytes = re.compile(pattern.replace("/", r"\\?/").encode("utf-8", "surrogateescape"))

    def text(self, value: str) -> str:
        """A text without keys."""
        return self._text.sub(_MASK, value)

    def data(self, value: bytes) -> bytes:
        """Bytes without keys."""
        return self._bytes.sub(_MASK.encode(), value)

    def json(self, value: Any) -> Any:
        """JSON without keys; the same object when it holds none."""
        if isinstance(value, str):
            return self.text(value) if self._text.search(value) else value
        if isinstance(value, list):
            entries = [self.json(one) for one in value]
            return entries if any(new is not old for new, old in zip(entries, value, strict=True)) else value
        if isinstance(value, dict):
            pairs = {self.json(key): self.json(one) for key, one in value.items()}
            changed = pairs.keys() != value.keys() or any(pairs[key] is not value[key] for key in value)
            return pairs if changed else value
        return value

    def stream(self, events: list[bytes]) -> list[bytes]:
        """The events of a stream without keys, those included that are spelled over several events."""
        events = [self.data(event) for event in events]
        spoken: dict[bytes, list[tuple[int, int, bytes]]] = {}
        for number, event in enumerate(events):
            for found in _TEXT.finditer(event):
                end = _STRING_END.match(event, found.end())
                assert end is not None
                spoken.setdefault(found[1], []).append((number, found.end(), end[0]))
        edits: dict[int, bytearray] = {}
        for pieces in spoken.values():
            begins = [0, *accumulate(len(piece) for _, _, piece in pieces)]
            for match in self._bytes.finditer(b"".join(piece for _, _, piece in pieces)):
                for at in range(bisect_right(begins, match.start()) - 1, bisect_left(begins, match.end())):
                    number, start, piece = pieces[at]
                    low, high = max(match.start() - begins[at], 0), min(match.end() - begins[at], len(piece))
                    if low < high:
                        edited = edits.setdefault(number, bytearray(events[number]))
                        edited[start + low : start + high] = b"*" * (high - low)  # same length: positions stay
        for number, edited in edits.items():
            events[number] = bytes(edited)
        return events

    def error(self, error: Exception) -> None:
        """Take keys out of the text of an error."""
        error.args = tuple(self.text(part) if isinstance(part, str) else part for part in error.args)


class CallAnswered(Exception):
    """A step has answered a call, which goes no further."""

    def __init__(self, response: web.Response) -> None:
        super().__init__()
        self.response = response


def error_answer(dialect: Dialect[Any], message: str, status: int) -> web.Response:
    """An error as the format's providers answer it."""
    body = error_body(dialect, message, status)
    if "type" not in body:
        body["error"] |= {"param": None, "code": None}  # as OpenAI's
    return web.json_response(body, status=status)


StepT = TypeVar("StepT", bound=Callable[..., Any])


class Gateway:
    """Holds one rollout's bounds, and what its requests have come to.

    The agent has the `secret`, the key of the session that serves its main calls; `sub_bearer`, that of its sub calls
    (`side`, if it has any), never leaves this process, nor does `summary_bearer`, that of the session which serves
    summaries (`summariser`, if another seat's model makes them).
    """

    def __init__(
        self,
        config: GatewayConfig,
        session: RolloutSession,
        program: AgentProgram,
        secret: str,
        side: SubRollout | None = None,
        sub_bearer: str = "",
        summariser: SummarySession | None = None,
        summary_bearer: str = "",
    ) -> None:
        self.config = config
        self.main = session
        self.program = program
        self.secret = secret
        self.side = side
        self.sub_bearer = sub_bearer
        self.summariser = summariser
        self.summary_bearer = summary_bearer
        harness = session.trace.agent.config.harness
        self.calls = MainCalls(session.limits, config.max_parallel_calls)
        self.rules: ModelRequests = model_requests(harness)
        self.echoes = echo_rules(harness)
        """How the rollout's agent sends its history back, if it says so."""
        self.histories: dict[bool, History] = {}
        """Of the main (True) and the sub session, if the agent says so."""
        if self.echoes is not None:
            sessions = {True: session} if side is None else {True: session, False: side.session}
            self.histories = {main: History(one, self.echoes) for main, one in sessions.items()}
        self.cpu = CpuBudget()
        self.memory = BodyMemory(_BODIES_HELD * config.max_body)
        self.left = TraceBytes(config.max_trace)
        """What the rollout's calls have left on its traces."""
        self.stop: str | None = None
        """The stop before the next main call, where one of them has brought it about."""
        self.offered: dict[bool, tuple[dict[str, Any], list[Tool] | None]] = {}
        """The tools of the newest main (True) and sub call, as they came and typed."""
        self.open = 0
        """Requests that are taken up now, waiting ones included."""
        self.aside = asyncio.Semaphore(4)
        """Places for requests that are not model calls."""
        self.load = ProgramLoad()
        self.prompts: dict[tuple[bool, str | None], tuple[int, int]] = {}
        """Bytes and tokens of the newest answered request, by whether it is a main call, and section."""
        self.keys: dict[int, str] = {}
        """Of failed calls that bore one, by position in `trace.calls`."""
        self.waits: dict[int, float] = {}
        """Of refused calls, the seconds after which the endpoint wanted to be asked again, by that position."""
        self.elsewhere: set[int] = set()
        """The positions there of summaries that another seat's model failed to make."""
        self.fixed_prompts = FixedPrompts(frozenset() if self.echoes is None else self.echoes.side_agents)
        self.summaries = Summaries(None if self.echoes is None else self.echoes.summary_agent)
        self._partial: set[MessageKey] = set()
        self._steps: dict[int, Sequence[Any]] = {}
        """The lists of `path.py` to which steps were added, by their identity."""

    @property
    def ended(self) -> str | None:
        """The stop of a rollout that may make no further main call; None: it may."""
        return MAX_TRACE if self.left.full else self.stop

    def steps(self, of: Sequence[StepT]) -> Sequence[StepT]:
        """A list of `path.py`, with the steps that features of the rollout have added."""
        return self._steps.get(id(of), of)

    def add_step(self, to: Sequence[StepT], step: StepT, *, after: StepT) -> None:
        """Have every call of the rollout take a step more, which follows another one in a list of `path.py`, and what
        was added behind that before."""
        steps = self.steps(to)
        place = steps.index(after) + 1
        while place < len(steps) and steps[place] not in to:
            place += 1
        self._steps[id(to)] = (*steps[:place], step, *steps[place:])

    def refuse(self, error: RequestRefused) -> None:
        """Count a refused request, which is paid for."""
        self.cpu.charge_refusal()
        self.note("refused", [str(error)])

    def main_request(self, error: RequestRefused | None) -> None:
        """Note on the trace what came of the newest main request, as long as it was refused."""
        info = self.main.trace.info
        if error is not None and not self.main.released:
            info.setdefault(GATEWAY_RECORD, {})[LAST_REFUSED] = str(error)[:200]
        elif GATEWAY_RECORD in info:
            info[GATEWAY_RECORD].pop(LAST_REFUSED, None)

    def call_failed(self, *, unusable: bool) -> None:
        """Note on the trace whether the newest failed call was answered with something else than an answer."""
        if unusable and not self.main.released:
            self.main.trace.info.setdefault(GATEWAY_RECORD, {})[UNUSABLE] = True
        else:
            self.main.trace.info.get(GATEWAY_RECORD, {}).pop(UNUSABLE, None)

    def step_keys(self, calls: Sequence[ModelCall]) -> Sequence[str | None]:
        """Return for each recorded call the key by which all sends of one call are known; None where it bore none."""
        return [self.keys.get(position) for position in self._positions(calls)]

    def waits_of(self, calls: Sequence[ModelCall]) -> Sequence[float]:
        """Return for each recorded call the seconds after which it might come again; 0 where the endpoint named
        none."""
        return [self.waits.get(position, 0.0) for position in self._positions(calls)]

    def are_elsewhere(self, calls: Sequence[ModelCall]) -> Sequence[bool]:
        """Return for each recorded call whether it is a summary that another seat's model failed to make."""
        return [position in self.elsewhere for position in self._positions(calls)]

    def _positions(self, calls: Sequence[ModelCall]) -> Sequence[int]:
        positions = {id(call): position for position, call in enumerate(self.main.trace.calls)}
        return [positions.get(id(call), -1) for call in calls]

    def note_partial(self, answers: list[MessageKey]) -> None:
        """Count the partial answers that were dropped from a request's history, each once."""
        if answers and len(self._partial) < 1000 and not self.main.released:
            self._partial.update(answers)
            self.main.trace.info.setdefault(GATEWAY_RECORD, {})[PARTIAL] = len(self._partial)

    def note(self, kind: str, reasons: list[str]) -> None:
        """Count on the trace why something of a request was refused, dropped or not known."""
        if self.main.released:
            return
        counts: dict[str, int] = self.main.trace.info.setdefault(GATEWAY_RECORD, {}).setdefault(kind, {})
        for reason in reasons:
            name = reason[:200]
            if name not in counts and len(counts) >= 20:
                name = "others"
            if name not in counts:
                logger.warning("%s of a model request: id=%s %s", kind, self.main.trace.id, name)
            counts[name] = counts.get(name, 0) + 1


class ServedRollout(Protocol):
    """The state of a rollout as its server finds and changes it (`opencode_env.cli_agent.rollout`)."""

    program: AgentProgram
    tunnel: OpenTunnel | None
    summary_seat: Agent | None

    def registered(self, gateway: Gateway) -> None: ...

    @property
    def live_sub(self) -> SubRollout | None: ...

    def ending_sub_calls(self) -> AbstractAsyncContextManager[None]: ...


RolloutOf = Callable[[AnyTrace], ServedRollout]
"""Finds the state of the rollout that a trace is of."""


@dataclass(eq=False)
class Call:
    """One request of a rollout, from when it came until it is answered, and all that its steps know of it.

    It travels as an argument: to the steps of `path.py`, and through verifiers' server as the dialect that serves it
    (see `endpoint.py`). What a step takes for the time of the call is given back by `until_end`.
    """

    # What came.
    request: web.Request
    dialect: Dialect[Any]
    """The wire format of its route."""
    gateway: Gateway
    """The rollout that its key belongs to."""
    # What was read.
    caller: Caller = field(default_factory=lambda: Caller(own=True))
    conversation: str | None = None
    """Which one it says it belongs to; None: it does not say, or a program of the agent asks."""
    key: str | None = None
    """By which all sends of one call are known."""
    session: RolloutSession | None = None
    """The one that serves it; None: it is not a model call."""
    sub: SubRollout | None = None
    """The sub side of the rollout, of a sub call."""
    body: dict[str, Any] = field(default_factory=dict)
    server_body: bytes = b'""'
    """What verifiers' server reads in its place: short JSON that differs between bodies that differ."""
    # What goes upstream.
    bearer: str = ""
    """The key of the session that serves it."""
    headers: list[tuple[str, str]] = field(default_factory=list)
    joined: bool = False
    """Whether it repeats another call and has no place of its own."""
    history: History | None = None
    """Of its session, if the agent says how it sends its history back."""
    request_key: RequestKey | None = None
    summarises: bool = False
    """Whether it asks for a summary of its conversation that is due."""
    summarised_for: RolloutSession | None = None
    """The session of that conversation, where another seat's model makes the summary."""
    section: int | None = None
    """The number of the summary with which it begins; None: it begins as its conversation did."""
    before_answer: list[Callable[[], Awaitable[object]]] = field(default_factory=list)
    """What is awaited, in order, before the agent gets its answer or hears of its failure."""
    last_message: dict[str, Any] = field(default_factory=dict)
    """With which it ends, as a chat endpoint gets it."""
    reading: Dialect[Any] = field(init=False)
    """The wire format as verifiers' server reads this call with it (`endpoint.py`)."""
    trains: bool = False
    """Whether its answer is sampled from tokens and may be trained on."""
    masking: Masking | None = None
    """Takes its endpoint's keys out of what that answers."""
    prompt_bytes: int = 0
    """Of what it says, where the window of its model is known."""
    answer_limit: int | None = None
    """Tokens that its answer may have in that window."""
    # What came back.
    content_type: str = ""
    """That of a stream."""
    framed: bool = False
    """Whether HTTP says that all of a stream came: by its length, or its last chunk."""
    events: list[bytes] | None = None
    """Of a stream that is an answer, as it came. No endpoint is asked where a step of `ASK` has them already."""
    broken: Exception | None = None
    """What ended a stream, when that was a failure."""
    answer: Response | None = None
    """Of a stream that was read."""
    unusable: bool = False
    """Whether its endpoint answered something else than an answer, and would do so again."""
    wait: float = 0.0
    """Seconds after which its endpoint, which refused it, wants to be asked again."""
    wait_headers: dict[str, str] = field(default_factory=dict)
    """Those with which it said so."""
    estimated: bool = False
    """Whether the usage of its answer holds an estimate."""
    call_fields: list[dict[str, Any]] = field(default_factory=list)
    """For each call of its answer, what the endpoint said of it beside OpenAI's fields."""
    logprobs: list[tuple[str, float]] = field(default_factory=list)
    # What is recorded.
    record: ModelCall | None = None
    until_end: ExitStack = field(default_factory=ExitStack)
    """What its steps hold until it is answered."""

    def __post_init__(self) -> None:
        self.reading = self.dialect

    @property
    def is_chat(self) -> bool:
        """Whether it came as a chat completion."""
        return self.dialect.upstream_path == CHAT

    @property
    def section_name(self) -> str | None:
        """Return what its section of its conversation is known by; None where it has no history."""
        return None if self.request_key is None else self.request_key[0]

    @property
    def is_main(self) -> bool:
        """Whether it is the main agent's, or of a program that says nothing."""
        return self.sub is None


CALL = web.RequestKey("opencode_env_call", Call)
"""On a request that verifiers' server serves."""

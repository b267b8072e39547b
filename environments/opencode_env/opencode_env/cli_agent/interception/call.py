"""`Call`: one request of a rollout, from when it came until it is answered, and all that its steps know of it.

It travels as an argument: to the steps of `path.py`, and through verifiers' server as the dialect that serves it (see
`served_dialect.py`). Invariant: what a step takes for the time of the call is given back by `until_end`, whatever
happens.
"""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from verifiers.v1.dialects import Dialect
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import ModelCall
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.conversations import Asked
from opencode_env.cli_agent.interception.gateway import Gateway
from opencode_env.cli_agent.interception.history import History
from opencode_env.cli_agent.interception.masking import Masking
from opencode_env.cli_agent.interception.own_calls import Caller
from opencode_env.cli_agent.interception.sub_rollout import SubRollout


@dataclass(eq=False)
class Call:
    """One request of a rollout."""

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
    """Whether it repeats another call and has no turn of its own."""
    history: History | None = None
    """Of its session, if the agent says how it sends its history back."""
    asked: Asked | None = None
    keeping: asyncio.Task[None] | None = None
    """Keeps the rollout's turn; its answer waits for that."""
    answer_place: Path | None = None
    """The folder of the kept turn that its answer is noted in."""
    known_answer: list[bytes] | None = None
    """The events of a stream that it was answered with before the rollout's process ended."""
    last_message: dict[str, Any] = field(default_factory=dict)
    """With which it ends, as a chat endpoint gets it."""
    reading: Dialect[Any] = field(init=False)
    """The wire format as verifiers' server reads this call with it (`served_dialect.py`)."""
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
        return self.dialect.upstream_path == "/chat/completions"


CALL = web.RequestKey("opencode_env_call", Call)
"""On a request that verifiers' server serves."""

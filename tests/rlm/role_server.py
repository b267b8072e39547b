"""Rollouts without an agent on a real role server: sessions as verifiers registers them, calls over real HTTP."""

import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import verifiers.v1 as vf
from aiohttp import ClientError, ClientSession, ClientTimeout
from multidict import CIMultiDict
from opencode_env.cli_agent.interception.callers import SubRollout, SubSettings
from opencode_env.cli_agent.interception.gateway import GatewayConfig
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, Fault, FaultKind, Reply
from verifiers.v1 import SamplingConfig
from verifiers.v1.agent import make_agent
from verifiers.v1.clients import ClientConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.interception import Interception, InterceptionServerConfig
from verifiers.v1.session import RolloutLimits, RolloutSession
from verifiers.v1.trace import AgentInfo, Trace, TraceTask

from tests.support.held_model import HeldModel
from tests.support.waiting import PATIENCE_SECONDS

SUB = {"X-RLM-Role": "sub"}
CHAT = "/v1/chat/completions"
Headers = Mapping[str, str] | None


def plan_of(request: ChatRequest) -> dict[str, Any]:
    """How a call goes, from its prompt; the reply to one that is `held` waits for `HeldModel.released`."""
    prompt = request.user_texts[-1]
    return json.loads(prompt) if prompt.startswith("{") else {}


def scripted(request: ChatRequest) -> Reply:
    """Answers `echo <prompt>`; a prompt that is JSON says how it goes: `delay` (s), `status`, `hang`, `cut`."""
    settings = {"delay": "seconds", "status": "status"}
    faults = [
        Fault(kind=FaultKind(kind), **({settings[kind]: value} if kind in settings else {}))
        for kind, value in plan_of(request).items()
        if kind in ("delay", "status", "hang", "cut") and value
    ]
    return Reply(text=f"echo {request.user_texts[-1]}", faults=tuple(faults))


@dataclass
class Rollout:
    """One rollout without an agent: its two traces, its session on the server, and calls over HTTP."""

    main: AnyTrace
    side: SubRollout
    session: RolloutSession
    http: ClientSession
    model: HeldModel
    url: str = ""
    secret: str = ""

    @property
    def sub(self) -> AnyTrace:
        """The sub trace."""
        return self.side.trace

    async def ask(
        self, prompt: str | list[Any], headers: Headers = None, *, stream: bool = False, secret: str | None = None
    ) -> "Answer":
        """One chat call, answered or failed."""
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        body: dict[str, Any] = {"model": "whatever", "messages": messages, "temperature": 0.123, "stream": stream}
        body |= {"stream_options": {"include_usage": True}} if stream else {}
        sent = CIMultiDict(headers or {})
        sent.setdefault("Authorization", f"Bearer {secret or self.secret}")
        try:
            async with self.http.post(f"{self.url}{CHAT}", json=body, headers=sent) as response:
                return Answer(response.status, await response.text(), response.headers)
        except (ClientError, ConnectionError) as error:
            return Answer(0, f"{type(error).__name__}: {error}")

    async def post(self, data: Any, headers: Headers = None, *, path: str = CHAT) -> "Answer":
        """One request with this body, which need not be a chat call."""
        sent = {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json", **(headers or {})}
        data = io.BytesIO(data) if isinstance(data, bytes) else data  # a large one is then sent piece by piece
        async with self.http.post(f"{self.url}{path}", data=data, headers=sent) as response:
            return Answer(response.status, await response.text())

    async def sub_ask(self, prompt: str, **options: Any) -> "Answer":
        """One sub call."""
        return await self.ask(prompt, {**SUB, **options.pop("headers", {})}, **options)


@dataclass(frozen=True)
class Answer:
    """What came back; status 0 is a closed connection."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The answer's text, or the error's message."""
        parsed = json.loads(self.body)
        if "error" in parsed:
            return str(parsed["error"]["message"])
        return str(parsed["choices"][0]["message"]["content"])


@dataclass
class RoleServer:
    """A role interception in front of a scripted model."""

    interception: Interception
    model: HeldModel
    http: ClientSession
    client: ClientConfig
    _numbers: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def rollout(
        self,
        settings: SubSettings | None = None,
        limits: Mapping[str, int] | None = None,
        *,
        budget: Mapping[str, int] | None = None,
        harness: HarnessConfig | None = None,
        begun: Callable[[Rollout], None] = lambda rollout: None,
        summary: bool = False,
    ) -> AsyncIterator[Rollout]:
        """One rollout; leaving it normally is an agent that has finished.

        Args:
            settings: what bounds its sub calls.
            limits: of the sub seat.
            budget: limits of the main seat.
            harness: of the main seat.
            begun: what is done before the server knows it.
            summary: whether another seat's model makes its summaries.
        """
        number = len(self._numbers)
        self._numbers.append(number)
        rollout = self._new_rollout(number, settings or SubSettings(), limits or {}, harness, summary)
        rollout.session.limits = RolloutLimits(**(budget or {}))
        rollout_of(rollout.main).sub = rollout.side
        begun(rollout)
        try:
            async with self.interception.acquire(rollout.session) as (rollout.url, rollout.secret, _):
                yield rollout
                if rollout.main.stop_condition is None:
                    rollout.main.stop("agent_completed")
        finally:
            await rollout.side.end()

    def _new_rollout(
        self,
        number: int,
        settings: SubSettings,
        limits: Mapping[str, int],
        harness: HarnessConfig | None,
        summary: bool,
    ) -> Rollout:
        def agent(model: str, temperature: float, **options: Any) -> vf.Agent:
            seat: Any = {
                "harness": harness or NullHarnessConfig(id="null"),
                "runtime": vf.SubprocessConfig(),
                **options,
            }
            sampling = SamplingConfig(temperature=temperature)
            return make_agent(vf.AgentConfig(model=f"{model}-{number}", client=self.client, sampling=sampling, **seat))

        seat = agent("main", 0.5 + number / 1000)
        task: TraceTask[Any] = TraceTask(type="Task", data=vf.TaskData(idx=number, prompt="x"))
        main: AnyTrace = Trace(task=task, agent=AgentInfo(config=seat.config))
        session = RolloutSession(ctx=seat.ctx, trace=main, limits=RolloutLimits())
        side = SubRollout(main, agent("sub", 0.9 + number / 1000, **limits), settings)
        rollout_of(main).summary_seat = agent("summary", 0.1) if summary else None
        return Rollout(main, side, session, self.http, self.model)


@asynccontextmanager
async def role_server(
    config: Any = None, *, client: ClientConfig | None = None, gateway: GatewayConfig | None = None, **model: Any
) -> AsyncIterator[RoleServer]:
    """A running role server.

    Args:
        config: of the interception; None = one server.
        client: of the rollouts; None = it leads to the scripted model.
        gateway: bounds of the rollouts' requests.
        model: arguments of the scripted model.
    """
    async with (
        HeldModel(scripted, lambda request: bool(plan_of(request).get("held")), **model) as held,
        role_interception(config or InterceptionServerConfig(), gateway=gateway) as interception,
        ClientSession(timeout=ClientTimeout(total=PATIENCE_SECONDS)) as http,
    ):
        own = vf.EvalClientConfig(base_url=held.base_url, api_key_var="NO_SUCH_KEY")
        yield RoleServer(interception, held, http, client or own)


@pytest.fixture
async def server() -> AsyncIterator[RoleServer]:
    """One with the usual bounds."""
    async with role_server() as server:
        yield server


@pytest.fixture
async def rollout(server: RoleServer, request: pytest.FixtureRequest) -> AsyncIterator[Rollout]:
    """A rollout on it, of the harness that the test is parametrised with or of none."""
    async with server.rollout(harness=getattr(request, "param", None)) as rollout:
        yield rollout

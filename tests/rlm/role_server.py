"""Rollouts without an agent on a real role server: sessions as verifiers registers them, calls over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import verifiers.v1 as vf
from aiohttp import ClientError, ClientSession, ClientTimeout
from opencode_env.cli_agent.interception import SubRollout, SubSettings
from opencode_env.cli_agent.interception.serving import role_interception
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, Fault, FaultKind, Reply, ScriptedModel
from verifiers.v1.agent import make_agent
from verifiers.v1.clients import ClientConfig
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.interception import Interception, InterceptionServerConfig
from verifiers.v1.session import RolloutLimits, RolloutSession
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import SamplingConfig

SUB = {"X-RLM-Role": "sub"}


def scripted(request: ChatRequest) -> Reply:
    """Answers `echo <prompt>`; a prompt that is JSON says how it goes: `delay` (s), `status`, `hang`, `cut`."""
    prompt = request.user_texts[-1]
    plan: dict[str, Any] = json.loads(prompt) if prompt.startswith("{") else {}
    faults: list[Fault] = []
    if plan.get("delay"):
        faults.append(Fault(kind=FaultKind.DELAY, seconds=plan["delay"]))
    if plan.get("status"):
        faults.append(Fault(kind=FaultKind.STATUS, status=plan["status"]))
    if plan.get("hang"):
        faults.append(Fault(kind=FaultKind.HANG))
    if plan.get("cut"):
        faults.append(Fault(kind=FaultKind.CUT))
    return Reply(text=f"echo {prompt}", faults=tuple(faults))


@dataclass
class Line:
    """One rollout's way to the server."""

    main: AnyTrace
    side: SubRollout
    session: RolloutSession
    http: ClientSession
    url: str = ""
    secret: str = ""

    @property
    def sub(self) -> AnyTrace:
        """The sub trace."""
        return self.side.trace

    async def ask(
        self,
        prompt: str | list[dict[str, str]],
        headers: Mapping[str, str] | None = None,
        *,
        stream: bool = False,
        secret: str | None = None,
    ) -> "Answer":
        """One chat call, answered or failed; `timeout` of the client is 20 s."""
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        body = {"model": "whatever", "messages": messages, "temperature": 0.123, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        sent = {"Authorization": f"Bearer {secret or self.secret}", **(headers or {})}
        try:
            async with self.http.post(f"{self.url}/v1/chat/completions", json=body, headers=sent) as response:
                return Answer(response.status, await response.text())
        except (ClientError, ConnectionError) as error:
            return Answer(0, f"{type(error).__name__}: {error}")

    async def sub_ask(self, prompt: str, **options: Any) -> "Answer":
        """One sub call."""
        return await self.ask(prompt, {**SUB, **options.pop("headers", {})}, **options)


@dataclass(frozen=True)
class Answer:
    """What came back; status 0 is a closed connection."""

    status: int
    body: str

    @property
    def text(self) -> str:
        """The answer's text, or the error's message."""
        parsed = json.loads(self.body)
        if "error" in parsed:
            return str(parsed["error"]["message"])
        return str(parsed["choices"][0]["message"]["content"])


@dataclass
class Switchboard:
    """A role interception in front of a scripted model."""

    interception: Interception
    model: ScriptedModel
    http: ClientSession
    client: ClientConfig
    _numbers: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def line(
        self, settings: SubSettings | None = None, limits: Mapping[str, int] | None = None
    ) -> AsyncIterator[Line]:
        """One rollout; leaving it normally is an agent that has finished."""
        number = len(self._numbers)
        self._numbers.append(number)
        line = self._line(number, settings or SubSettings(), limits or {})
        line.side.begin()
        try:
            async with self.interception.acquire(line.session) as (line.url, line.secret, _):
                yield line
                if line.main.stop_condition is None:
                    line.main.stop("agent_completed")
        finally:
            await line.side.end()

    def _line(self, number: int, settings: SubSettings, limits: Mapping[str, int]) -> Line:
        def agent(model: str, temperature: float, **options: Any) -> vf.Agent:
            return make_agent(
                vf.AgentConfig(
                    harness=NullHarnessConfig(id="null"),
                    runtime=vf.SubprocessConfig(),
                    model=f"{model}-{number}",
                    client=self.client,
                    sampling=SamplingConfig(temperature=temperature),
                    **options,
                )
            )

        seat = agent("main", 0.5 + number / 1000)
        task: TraceTask[Any] = TraceTask(type="Task", data=vf.TaskData(idx=number, prompt="x"))
        main: AnyTrace = Trace(task=task, agent=AgentInfo(config=seat.config))
        session = RolloutSession(ctx=seat.ctx, trace=main, limits=RolloutLimits())
        side = SubRollout(main, agent("sub", 0.9 + number / 1000, **limits), settings)
        return Line(main, side, session, self.http)


@asynccontextmanager
async def switchboard(
    config: Any = None, *, client: ClientConfig | None = None, **server: Any
) -> AsyncIterator[Switchboard]:
    """A running switchboard; `client` leads elsewhere than to the scripted model, `server` are that one's arguments."""
    async with (
        ScriptedModel(scripted, **server) as model,
        role_interception(config or InterceptionServerConfig()) as interception,
        ClientSession(timeout=ClientTimeout(total=20)) as http,
    ):
        own = vf.EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        yield Switchboard(interception, model, http, client or own)


async def eventually(condition: Any, seconds: float = 5.0) -> None:
    """Return once `condition()` holds.

    Raises:
        TimeoutError: it does not within so many seconds.
    """
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)

"""A conversation of several segments with the real binary behind the role interception, the model strict."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode import harness
from opencode_env.agents.opencode.state import CONFIG_DIR, state_archive
from opencode_env.cli_agent.interception.callers import SubSettings
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, RecordedRequest, Reply, ToolCall
from verifiers.v1.interception import InterceptionServerConfig

from tests.history.meaning import TELL, TELL_TOOL, WITNESS
from tests.support.seats import SUB_MODEL, seated
from tests.support.strict_model import StrictModel
from tests.support.sub_sessions import has_tasks, with_tasks

DONE = Reply(text="Done.")
_tells: ContextVar[bool] = ContextVar("tells", default=False)


def _archive(config: str, append: str, extra: Mapping[str, str], *rest: Any) -> bytes:
    """Every segment's files, with the tool `tell` in a conversation of this module."""
    tool = {f"{CONFIG_DIR}/tool/{TELL}.js": TELL_TOOL} if _tells.get() else {}
    return state_archive(config, append, {**extra, **tool}, *rest)


vars(harness)["state_archive"] = _archive


class Lines:
    """A policy that gives each conversation its lines, one for each request, and then ends it.

    Args:
        main: of the main agent.
        sub: of the sub-agents, by a word in their prompt.
        twins: whether several sub-agents have one prompt, and speak at once.
    """

    def __init__(self, main: Sequence[Reply], sub: Mapping[str, Sequence[Reply]], twins: bool) -> None:
        self.said: dict[str, list[Reply]] = {"": []}
        """Everything that each model said: the main agent's under "", the others' by their word."""
        self._lines = {"": main, **sub}
        self._twins = twins

    def __call__(self, request: ChatRequest, /) -> Reply:
        words = [word for word in self._lines if word and word in request.prompt]
        word = words[0] if words and request.model == SUB_MODEL else ""
        said, lines = self.said.setdefault(word, []), self._lines[word]
        position = request.turn if word and self._twins else len(said)
        reply = _with_tasks(lines[position] if position < len(lines) else DONE, request)
        said.append(reply)
        return reply


def _with_tasks(reply: Reply, request: ChatRequest) -> Reply:
    """The reply with the ids of the sub-agents' sessions."""
    if not any(has_tasks(call.arguments_json) for call in reply.tool_calls):
        return reply
    results = [message.text for message in request.body.messages if message.role == "tool"]

    def named(call: ToolCall) -> ToolCall:
        return call.model_copy(update={"arguments": with_tasks(call.arguments_json, results)})

    return reply.model_copy(update={"tool_calls": tuple(map(named, reply.tool_calls))})


@dataclass(frozen=True)
class Talk:
    """What one conversation left behind."""

    main: AnyTrace
    sub: AnyTrace
    requests: Sequence[RecordedRequest]
    """What arrived at the model endpoint."""
    words: Mapping[str, Sequence[Reply]]
    """What each model said: the main agent's under "", the sub-agents' by a word of their prompt."""
    told: str
    """What the witness of the tools held in the end."""

    @property
    def said(self) -> Sequence[Reply]:
        """Everything that the main agent's model said."""
        return self.words[""]

    @property
    def refused(self) -> list[RecordedRequest]:
        """Requests that a strict provider does not take."""
        return [request for request in self.requests if request.outcome == "refused"]

    @property
    def answers(self) -> list[Any]:
        """Every answer of the main trace, in order."""
        return [node.message for node in self.main.nodes if node.sampled]

    @property
    def results(self) -> list[str]:
        """The results of the main agent's tools, in order."""
        return [str(node.message.content) for node in self.main.nodes if node.message.role == "tool"]


async def talk(
    *segments: Sequence[Reply],
    sub: Mapping[str, Sequence[Reply]] | None = None,
    pieces: int = 7,
    strict: bool = True,
    twins: bool = False,
    during: Any = None,
    settings: SubSettings | None = None,
    **harness: Any,
) -> Talk:
    """Play one segment after the other, each to the agent's end.

    Args:
        segments: what the model says in each.
        sub: what sub-agents' models say, by a word of their prompt; None = the harness without recursion.
        pieces: characters of a piece of a stream.
        strict: whether the model refuses what a strict provider refuses.
        twins: whether sub-agents with one prompt speak at once.
        during: called with the sandbox before each further segment.
        settings: of the sub calls.
        harness: fields of the harness.
    """
    _tells.set(True)
    policy = Lines([reply for segment in segments for reply in segment], sub or {}, twins)
    async with (
        StrictModel(policy, strict=strict, chunk_characters=pieces) as model,
        role_interception(InterceptionServerConfig()) as interception,
    ):
        client = vf.EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        recursive = sub is not None
        async with seated(client, interception, recursive=recursive, settings=settings, **harness) as seats:
            box = seats.box
            for number in range(len(segments)):
                if number and during is not None:
                    await during(box)
                await seats.main_agent.turn(f"segment {number}")
            told = (await box.run(["sh", "-c", f"cat {WITNESS} 2>/dev/null || true"], {})).stdout
        return Talk(seats.main, seats.sub, model.requests, policy.said, told)

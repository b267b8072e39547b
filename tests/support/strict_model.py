"""A scripted model that can be strict: it then refuses what one provider or another refuses.

OpenAI enforces ids, names and results of tool calls; Mistral and Anthropic's gateways that an assistant message says
something; engines that parse the arguments of a call again that those are objects.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp import web
from opencode_env.scripted_model import Policy, RecordedRequest, RequestOutcome, ScriptedModel
from opencode_env.scripted_model.wire import error_body
from pydantic_core import from_json


class StrictModel(ScriptedModel):
    """Refuses with 400 what a strict provider refuses, if it is `strict`; further arguments as of `ScriptedModel`."""

    def __init__(self, policy: Policy, *, strict: bool = True, **server: Any) -> None:
        super().__init__(policy, **server)
        self._strict = strict

    async def _answer(self, http: web.Request, record: RecordedRequest) -> web.StreamResponse:
        body = await http.json()
        problem = problem_of(body) if self._strict else None
        if problem is None:
            return await super()._answer(http, record)
        record.body, record.outcome = body, RequestOutcome.REFUSED
        await self._keep(record)
        return web.json_response(error_body(problem, "BadRequestError", 400), status=400)


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def problem_of(body: dict[str, Any]) -> str | None:
    """Return what is wrong with a request, or None."""
    return next(_problems(body["messages"]), None)


def _problems(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    owed: set[str] = set()
    for position, message in enumerate(messages):
        here = f"messages[{position}]"
        if message.get("role") not in ("system", "user", "assistant", "tool"):
            yield f"{here}.role is unknown"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in owed:
                yield f"{here} answers no tool call of the message before it"
            owed.discard(message["tool_call_id"])
            continue
        if owed:
            yield f"{here} stands where the result of call {min(owed)!r} must"
        if message["role"] == "assistant":
            calls = message.get("tool_calls") or []
            yield from _answer_problems(here, message, calls)
            owed = {call["id"] for call in calls}
    if owed:
        yield f"call {min(owed)!r} has no result"


def _answer_problems(here: str, message: dict[str, Any], calls: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not (message.get("content") or message.get("reasoning_content") or calls):
        yield f"{here} says nothing"
    if "tool_calls" in message and not calls:
        yield f"{here}.tool_calls is empty"
    ids = [call.get("id") for call in calls]
    if len(set(ids)) != len(ids):
        yield f"{here} has several calls of one id"
    for number, call in enumerate(calls):
        place = f"{here}.tool_calls[{number}]"
        if not call.get("id") or call.get("type") != "function":
            yield f"{place} has no id, or is not a function"
        if not _NAME.fullmatch(call["function"]["name"]):
            yield f"{place} has a name that no tool can have"
        if not _is_object(call["function"]["arguments"]):
            yield f"{place}.function.arguments is not a JSON object"


def _is_object(text: str) -> bool:
    try:
        return isinstance(from_json(text, allow_inf_nan=False), dict)
    except ValueError:
        return False

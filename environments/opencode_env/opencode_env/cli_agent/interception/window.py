"""The window of a model: how large it is, in what words endpoints say that it is full, and the answer that fits.

A request asks for an answer of so many tokens at most. Some endpoints refuse one whose prompt and longest answer do not
fit into the window together; some refuse the name that the number has. A limit is only ever lowered, to what fits
behind the prompt by what is known of its tokens, and the request on the trace is the one that was answered.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any, TypeVar

import httpx
from pydantic_core import to_json
from verifiers.v1.clients import BaseClientConfig
from verifiers.v1.configs.client import resolve_api_key, resolve_headers
from verifiers.v1.errors import ProviderError
from verifiers.v1.harnesses.utils.compaction import CONTEXT_OVERFLOW_MARKERS

from opencode_env.cli_agent.interception.conversations import HISTORY_RECORD
from opencode_env.cli_agent.interception.gateway import Call
from opencode_env.cli_agent.traces import OF_THE_RUN

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

T = TypeVar("T")

_MORE_MARKERS = (
    "longer than the model's context length",  # SGLang, of the prompt
    "exceeds the maximum allowed length",  # SGLang, of what its cache holds
    "exceeds the available context size",  # llama.cpp
    "exceed context window of",  # llama-cpp-python
    "`max_new_tokens` must be <=",  # TGI, with 422, of prompt and answer
    "`inputs` must have less than",  # TGI, with 422, of the prompt
    "greater than the context length",  # LM Studio
    "when context the overflows",  # LM Studio, earlier
    "exceeded max context length",  # Ollama
    "input length exceeds",  # Ollama
    "input exceeds context length",  # Ollama, earlier
    "input is too long",  # Bedrock
    "exceed context limit",  # Anthropic, of prompt and answer
    "input tokens exceed",  # OpenAI, of a limit of its own
    "longer than the maximum model length",  # vLLM
    "too long to fit into the model",  # vLLM
    "context window exceeds limit",  # MiniMax
    "exceeded model token limit",  # Moonshot
)
_WHATEVER_STATUS = (
    "exceed_context_size_error",  # llama.cpp, at first with 500
    "context size has been exceeded",  # llama.cpp with 500, and LM Studio in a stream
    "tokens to keep from the initial prompt is greater than the context length",  # LM Studio in a stream
)


def says_full(status: int | None, text: str) -> bool:
    """Whether an endpoint says that a request does not fit into the window: 400, 413 or 422 in words that name it, or
    words with which an engine says nothing else, whatever the status."""
    said = text.casefold()
    if any(marker in said for marker in _WHATEVER_STATUS):
        return True
    return status in (400, 413, 422) and any(marker in said for marker in (*CONTEXT_OVERFLOW_MARKERS, *_MORE_MARKERS))


def as_full_window(call: Call, error: Exception) -> Exception:
    """Give a failure that says that the window is full a status at which no agent tries again."""
    if isinstance(error, ProviderError) and says_full(error.status_code, str(error)):
        error.status_code = error.status_code if error.status_code in (413, 422) else 400
    return error


_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Of the limit, in any wire format."""
_OTHER_NAME = re.compile(r"not support|unsupported|instead|unrecogni|unknown|not permitted|deprecated|removed")
_SMALL_ANSWER = 2000
"""Tokens; an answer that is held to fewer may be cut off, which is told."""
_LEAST_ANSWER = 1 / 16
"""Share of the window that is asked for at least: whether it fits, the endpoint knows better than an estimate."""
_FIRST_BYTES, _FURTHER_BYTES = 3, 2
"""Bytes of a request that are a token at least, as an estimate: of a whole request, and of what is new in one."""
_SPARSEST = 1 / 4
"""Tokens by byte of what is new in a request that are counted on, as a share of those of what it held before."""
_PICTURE = re.compile(rb'"data:image/[^"]{1000,}"')
_PICTURE_BYTES = 3000
"""What counts for the data of a picture, which is not read as text."""


class AnswerLimits:
    """Sees to it that an endpoint takes the limit of an answer."""

    def __init__(self, config: BaseClientConfig) -> None:
        self._config = config
        self._renamed: set[str] = set()
        """Models that want `max_completion_tokens`."""
        self._told: set[str] = set()
        """Models whose answers were said to be held small."""
        self._windows: dict[str, int | None] = {}

    async def ask(self, call: Call, body: dict[str, Any], ask: Callable[[], Awaitable[T]]) -> T:
        """Ask, once more where the endpoint says what it wants. Changes the limit in `body`, and `answer_limit`."""
        window = await self._window(call, str(body.get("model")))
        if call.is_chat and not call.trains:
            self._rename(body)
        call.prompt_bytes = 0 if window is None else _bytes_of(body)
        if window is not None:
            _require_room(call, window)
            prompt = _prompt_tokens(call)
            self._tell_of_small(body, window, prompt)
            _lower(body, max(window - prompt, int(window * _LEAST_ANSWER), 1))
        for _ in range(2):  # a limit can have the wrong name, and then the wrong size
            call.answer_limit = None if window is None else _limit(body)
            try:
                return await ask()
            except ProviderError as error:
                if not (self._wants_other_name(call, body, error) or _wants_less(body, window, error)):
                    raise
        call.answer_limit = None if window is None else _limit(body)
        return await ask()

    def _tell_of_small(self, body: Mapping[str, Any], window: int, prompt: int) -> None:
        """Warn, once for a model, that a prompt leaves little of its window for an answer."""
        model, left = str(body.get("model")), max(window - prompt, 0)
        if model in self._told or left >= min(_limit(body) or 0, _SMALL_ANSWER):
            return
        self._told.add(model)
        told = (
            "the window of %s, %d tokens, has room for %d of an answer behind a prompt of about %d: answers may be cut "
            "off. Serve a larger window, or name the right one (--env.agent.harness.context-window)"
        )
        logger.warning(told, model, window, left, prompt, extra=OF_THE_RUN)

    def _rename(self, body: dict[str, Any]) -> None:
        if body.get("model") in self._renamed and "max_tokens" in body:
            body["max_completion_tokens"] = body.pop("max_tokens")

    def _wants_other_name(self, call: Call, body: dict[str, Any], error: ProviderError) -> bool:
        """Whether an endpoint refuses `max_tokens` for its name; the other stands in its place then."""
        said = str(error)
        if not call.is_chat or call.trains or error.status_code not in (400, 422) or "max_tokens" not in body:
            return False
        if "max_completion_tokens" not in said or not _OTHER_NAME.search(said) or says_full(error.status_code, said):
            return False
        self._renamed.add(str(body.get("model")))
        self._rename(body)
        return True

    async def _window(self, call: Call, model: str) -> int | None:
        """Tokens of the model's window, where that is to be known."""
        option: int | str | None = getattr(_harness(call), "context_window", None)
        if isinstance(option, int):
            return option if call.is_main and call.summarised_for is None else None  # the model may be another
        if option != "auto":
            return None
        return self._windows[model] if model in self._windows else await self.listed(model)

    async def listed(self, model: str) -> int | None:
        """Tokens of the model's window by the endpoint's list, which is asked until it has named one."""
        if (known := self._windows.get(model)) is not None:
            return known
        found = await listed_window(self._config, model)
        if found is None and model not in self._windows:
            told = "the endpoint's list of models names no window of %s: --env.agent.harness.context-window N does"
            logger.warning(told, model, extra=OF_THE_RUN)
        self._windows[model] = found
        return found


def _harness(call: Call) -> Any:
    agent = call.gateway.main.trace.agent
    return None if agent is None else agent.config.harness


def _limit(body: Mapping[str, Any]) -> int | None:
    return next((body[name] for name in _NAMES if type(body.get(name)) is int), None)


def _lower(body: dict[str, Any], limit: int) -> None:
    for name in _NAMES:
        if type(body.get(name)) is int:
            body[name] = min(body[name], limit)


def _bytes_of(body: Mapping[str, Any]) -> int:
    raw = to_json({key: value for key, value in body.items() if key in ("messages", "input", "system", "tools")})
    pictures = [found.end() - found.start() - _PICTURE_BYTES for found in _PICTURE.finditer(raw)]
    return len(raw) - sum(pictures)


def _prompt_tokens(call: Call) -> int:
    """The most tokens that the prompt has, by those that the endpoint counted before and the bytes that are new."""
    size = call.prompt_bytes
    known_bytes, known = call.gateway.prompts.get((call.is_main, call.section_name), (size + 1, 0))
    new = size - known_bytes
    return known + ceil(new / _FURTHER_BYTES) if new >= 0 else ceil(size / _FIRST_BYTES)


def _require_room(call: Call, window: int) -> None:
    """Refuse a call that cannot be answered, as an endpoint would: what it holds does not fit into the window, even if
    what is new has a fraction of the tokens that as many bytes had before. All of a shorter request is new, and of one
    for a summary, which is another text each time."""
    known_bytes, known = call.gateway.prompts.get((call.is_main, call.section_name), (call.prompt_bytes, 0))
    grown = call.prompt_bytes >= known_bytes and not call.summarises
    new = call.prompt_bytes - known_bytes if grown else call.prompt_bytes
    least = known * grown + int(new * known / known_bytes * _SPARSEST)
    if least >= window:
        told = f"the prompt has about {least} tokens or more, beyond the maximum context length of {window} tokens"
        raise ProviderError(told, status_code=400)


def note_prompt(call: Call) -> None:
    """Keep what the endpoint counted in the prompt of a recorded call."""
    if call.prompt_bytes and call.record is not None and call.record.usage is not None and call.record.node is not None:
        place = (call.is_main, call.section_name)
        call.gateway.prompts[place] = (call.prompt_bytes, call.record.usage.input_tokens)


def note_fill(call: Call) -> None:
    """Keep how full a recorded call of the agent's own program leaves its conversation's window; a summary that was
    refused leaves it as it was."""
    assert call.record is not None
    error, usage, gateway = call.record.error, call.record.usage, call.gateway
    if call.conversation is None or not call.caller.own:
        return
    if call.record.node is not None:
        tokens = 0 if usage is None else usage.total_tokens
        gateway.summaries.answered(call.conversation, tokens, summary=call.summarises)
    elif error is not None and not call.summarises and says_full(error.status_code, error.message):
        gateway.summaries.refused(call.conversation, _bytes_of(call.body))


LITTLE_GAIN = "compaction_gain"
"""The stop of a rollout whose summary saves less than its harness asks for."""


def require_gain(call: Call) -> None:
    """Let a rollout make no further call when the first one behind a summary has hardly fewer tokens before its answer
    than the section before had at its end, or behind a refusal hardly fewer bytes than what was refused."""
    least, record, trace = getattr(_harness(call), LITTLE_GAIN, None), call.record, call.gateway.main.trace
    if least is None or record is None or record.usage is None or not call.is_main or call.summarises:
        return
    history = trace.info.get(HISTORY_RECORD, {})
    sections = [one for one in history.get("sections", ()) if one["conversation"] == call.conversation][-2:]
    if len(sections) == 2 and sections[1]["first"] == record.node:
        before, now = sections[0]["tokens"], record.usage.input_tokens
        if not history["summaries"][sections[1]["summary"]]["planned"]:
            before, now = call.gateway.summaries.refused_bytes.get(sections[1]["conversation"], 0), _bytes_of(call.body)
        if before and before - now < least * before:
            call.gateway.stop = LITTLE_GAIN


def _wants_less(body: dict[str, Any], window: int | None, error: ProviderError) -> bool:
    """Whether an endpoint says how long the prompt is; the limit becomes what is left then."""
    limit = _limit(body)
    if window is None or limit is None or not says_full(error.status_code, str(error)):
        return False
    numbers = {int(number) for number in re.findall(r"(?<![\d.])\d{1,9}(?![\d.])", str(error)[:2000])}
    prompt = max((number for number in numbers if number < window and number != limit), default=0)
    if not prompt or window - prompt >= limit:
        return False
    _lower(body, window - prompt)
    return True


_WINDOW_FIELDS = (
    ("max_model_len",),  # vLLM, SGLang
    ("loaded_context_length",),  # LM Studio
    ("meta", "n_ctx"),  # llama.cpp: what it was started with, and what the model was trained for
    ("context_length",),  # OpenRouter, Together, Fireworks
    ("context_window",),  # Groq
    ("max_context_length",),  # Mistral, LM Studio
    ("max_input_tokens",),  # LiteLLM
    ("meta", "n_ctx_train"),
)


async def ask_models(config: BaseClientConfig, path: str = "/models") -> httpx.Response:
    """An endpoint's answer to the question for its models.

    Raises:
        HTTPError: there is none.
    """
    url = httpx.URL(config.base_url)
    url = url.copy_with(path=url.path.rstrip("/") + path)
    headers = httpx.Headers(resolve_headers(config))
    headers.setdefault("authorization", f"Bearer {resolve_api_key(config)}")
    async with httpx.AsyncClient(timeout=httpx.Timeout(20.0, connect=10.0)) as client:
        return await client.get(url, headers=headers)


def model_cards(response: httpx.Response) -> list[Mapping[str, Any]]:
    """Return what a list of models holds; nothing where it is not one."""
    try:
        found = response.json()
    except ValueError:
        return []
    cards = found.get("data") if isinstance(found, dict) else found
    return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []


async def listed_window(config: BaseClientConfig, model: str) -> int | None:
    """Tokens of a model's window, as its endpoint's list of models says, or that of LM Studio's own interface."""
    root = config.model_copy(update={"base_url": re.sub(r"/v\d+/?(?=$|\?)", "", config.base_url)})
    for where, path in ((config, "/models"), (root, "/api/v0/models")):
        try:
            response = await ask_models(where, path)
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        cards = model_cards(response)
        card = next((card for card in cards if card.get("id") == model), cards[0] if len(cards) == 1 else {})
        for names in _WINDOW_FIELDS:
            value: Any = card
            for name in names:
                value = value.get(name) if isinstance(value, dict) else None
            if type(value) is int and value > 0:
                return value
    return None

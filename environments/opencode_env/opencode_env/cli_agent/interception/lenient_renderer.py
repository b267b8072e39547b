"""A model's own renderer, which reads whatever the model samples: what is not a valid call comes out as a failed one.

renderers keep a malformed call beside those that are fine, and verifiers' training client leaves it out. The answer is
then empty, and an agent that knows of no call ends there. Invariant: every call that was begun reaches the agent, none
that was malformed can run, and no text that a model samples fails the call that sampled it.

`renderers` takes a renderer of somebody else's by its import path; this one stands before the model's own class.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import ConfigDict
from renderers import CustomRendererConfig, Renderer, RendererConfig, create_renderer
from renderers.base import ParsedResponse, ParsedToolCall, RenderedTokens, Tokenizer, ToolCallParseStatus
from renderers.configs import BaseRendererConfig
from rollout_sandbox.surrogates import whole_text

NAMELESS = "unknown"
"""Tool of a call that names none: an agent says that there is no such tool, and which there are."""


class LenientRendererConfig(BaseRendererConfig):
    """Names the renderer; further fields are `chat_template_kwargs` of one run."""

    model_config = ConfigDict(frozen=True, extra="allow")
    _internal_fields = frozenset({"own"})
    _allow_opaque_template_kwargs = True

    own: RendererConfig | None = None
    """The model's own renderer; None finds it by the model's name."""


class LenientRenderer:
    """Makes the model's own renderer, with a parser that gives up on nothing."""

    config_class = LenientRendererConfig

    def __new__(cls, tokenizer: Tokenizer, config: LenientRendererConfig) -> Any:
        """The renderer; still of its own type, by which renderers and verifiers ask what it can do."""
        renderer: Any = create_renderer(tokenizer, config.own, chat_template_kwargs=config.model_extra)
        own: type[Renderer] = type(renderer)
        renderer.__class__ = _lenient_class(own)
        renderer.read_with = tokenizer
        return renderer


def lenient(own: RendererConfig | None) -> CustomRendererConfig:
    """The configuration of a model's renderer, made lenient."""
    path = f"{LenientRenderer.__module__}.{LenientRenderer.__qualname__}"
    return CustomRendererConfig.model_validate({"name": "custom", "import_path": path, "own": own})


class _Lenient:
    """A mixin before a class of renderers."""

    read_with: Tokenizer

    def parse_response(
        self, token_ids: list[int], *, tools: Sequence[Any] | None = None, prompt_ids: list[int] | None = None
    ) -> ParsedResponse:
        """What was sampled, with every call as one that goes to the agent."""
        try:
            parsed: ParsedResponse = super().parse_response(  # type: ignore[misc]
                token_ids, tools=tools, prompt_ids=prompt_ids
            )
        except (ValueError, RecursionError) as error:  # JSON with a number or a depth that Python does not read
            stops = self.get_stop_token_ids()  # type: ignore[attr-defined]
            said = self.read_with.decode([token for token in token_ids if token not in stops])
            parsed = ParsedResponse(content="", tool_calls=[ParsedToolCall(f"{type(error).__name__}: {said}")])
        offered = {tool["function"]["name"] for tool in tools or ()}
        return replace(parsed, tool_calls=[_handed_on(call, offered) for call in parsed.tool_calls])

    def bridge_to_next_turn(
        self, previous_prompt_ids: list[int], previous_completion_ids: list[int], new_messages: Any, **options: Any
    ) -> RenderedTokens | None:
        """What follows on an answer, behind its own tokens; also on a thought that was ended without being closed."""
        prompt, said = list(previous_prompt_ids), list(previous_completion_ids)
        bridge = super().bridge_to_next_turn  # type: ignore[misc]
        bridged: RenderedTokens | None = bridge(prompt, said, new_messages, **options)
        closing = getattr(self, "_think_end", None)
        stops = self.get_stop_token_ids()  # type: ignore[attr-defined]
        if bridged is not None or closing is None or not said or said[-1] not in stops:
            return bridged
        # What follows does not depend on whether the thought was closed, but without that renderers give nothing.
        closed = [*said[:-1], closing, said[-1]]
        bridged = bridge(prompt, closed, new_messages, **options)
        if bridged is None or bridged.multi_modal_data or bridged.token_ids[: len(prompt + closed)] != prompt + closed:
            return None
        for entries in (bridged.token_ids, bridged.message_indices, bridged.sampled_mask, bridged.is_content):
            del entries[len(prompt) + len(said) - 1 : len(prompt) + len(said)]
        return bridged


@cache
def _lenient_class(own: type[Renderer]) -> type[_Lenient]:
    return type(own.__name__, (_Lenient, own), {"__module__": own.__module__})


def _handed_on(call: ParsedToolCall, offered: Collection[str]) -> ParsedToolCall:
    """A call as verifiers hands it on: with a name, text for arguments, and a status that makes agents go on."""
    arguments = _text(call.arguments) if isinstance(call.name, str) and call.name else None
    if arguments is None:
        name = next((word for word in re.findall(r"[\w-]+", call.raw) if word in offered), NAMELESS)
        return replace(call, name=name, arguments=_no_json(call), status=ToolCallParseStatus.OK)
    return replace(call, name=whole_text(str(call.name)), arguments=arguments, status=ToolCallParseStatus.OK)


def _text(arguments: object) -> str | None:
    """Arguments as the text that verifiers would make of them; None where it cannot."""
    if isinstance(arguments, str):
        return whole_text(arguments)
    try:
        return json.dumps(arguments or {})
    except (ValueError, RecursionError):
        return None


def _no_json(call: ParsedToolCall) -> str:
    """A malformed call as it was sampled; where that could be read as arguments, behind what is wrong with it."""
    raw = whole_text(call.raw)
    try:
        json.loads(raw)
    except json.JSONDecodeError:
        if raw.strip():
            return raw
    except (ValueError, RecursionError):
        pass
    return f"{call.status}: {raw}"

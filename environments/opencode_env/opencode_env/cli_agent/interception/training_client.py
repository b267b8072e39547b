"""The renderer of verifiers' training client: a lenient one, and what it can do.

A conversation stays one sample as long as the renderer continues what was sampled. One that renders the whole history
again has other tokens for the same text, and the trace a branch for every time: a run whose traces could not be trained
on is refused at its start, by name, and one where some could not is warned of.
"""

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ConfigDict
from renderers import CustomRendererConfig, Renderer, RendererConfig, create_renderer
from renderers.base import ParsedResponse, ParsedToolCall, RenderedTokens, Tokenizer, ToolCallParseStatus
from renderers.configs import BaseRendererConfig
from rollout_sandbox.surrogates import whole_text
from rollout_sandbox.told import without_credentials
from verifiers.v1.agent import Agent
from verifiers.v1.clients import ModelContext, TrainClientConfig
from verifiers.v1.clients.train import ElasticRendererPool, tool_to_wire
from verifiers.v1.errors import EnvError
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage

from opencode_env.cli_agent.interception.answer_steps import LOGPROBS_RECORD
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.compat import with_mixin

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
    """Makes the model's own renderer, with a parser that gives up on nothing (see `_Lenient`)."""

    config_class = LenientRendererConfig

    def __call__(self, tokenizer: Tokenizer, config: LenientRendererConfig) -> Any:
        """The renderer; still of its own type, by which renderers and verifiers ask what it can do."""
        renderer = create_renderer(tokenizer, config.own, chat_template_kwargs=config.model_extra)
        made: Any = with_mixin(renderer, _Lenient)
        made.read_with = tokenizer
        return made


lenient_renderer = LenientRenderer()
"""What `CustomRendererConfig` names by its import path."""


def lenient(own: RendererConfig | None) -> CustomRendererConfig:
    """The configuration of a model's renderer, made lenient."""
    path = f"{LenientRenderer.__module__}.lenient_renderer"
    return CustomRendererConfig.model_validate({"name": "custom", "import_path": path, "own": own})


class _Lenient:
    """A mixin before a class of renderers, which keep a malformed call beside those that are fine: verifiers' training
    client leaves it out, so that an agent that knows of no call would end there. Every call that was begun reaches the
    agent, none that was malformed can run, and no text that a model samples fails the call."""

    read_with: Tokenizer

    def parse_response(
        self, token_ids: list[int], *, tools: Sequence[Any] | None = None, prompt_ids: list[int] | None = None
    ) -> ParsedResponse:
        """Return what was sampled, with every call as one that goes to the agent."""
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

    def spelled_calls(self, prompt_ids: list[int], token_ids: list[int], tools: Sequence[Any]) -> int:
        """Return how many sound calls more an answer would hold if each mark in its text were the token that it
        spells."""
        stops = self.get_stop_token_ids()  # type: ignore[attr-defined]

        def calls(ids: list[int]) -> int:
            try:
                read = super(_Lenient, self).parse_response  # type: ignore[misc]
                parsed: ParsedResponse = read(ids, tools=tools, prompt_ids=prompt_ids)
            except (ValueError, RecursionError):
                return 0
            return sum(call.status == ToolCallParseStatus.OK for call in parsed.tool_calls)

        said = [token for token in token_ids if token not in stops]
        text = self.read_with.decode(said, skip_special_tokens=False)
        marks = getattr(self.read_with, "get_added_vocab", None)  # not every tokenizer tells
        if marks and all(text.count(name) <= said.count(token) for name, token in marks().items() if name in text):
            return 0
        spelled = [token for token in self.read_with.encode(text, add_special_tokens=False) if token not in stops]
        return 0 if spelled == said else max(0, calls(spelled) - calls(said))

    def bridge_to_next_turn(
        self, previous_prompt_ids: list[int], previous_completion_ids: list[int], new_messages: Any, **options: Any
    ) -> RenderedTokens | None:
        """Return what follows on an answer, behind its own tokens; also on a thought that was ended without being
        closed."""
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


logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")

_SET = 'vf-eval: --client.renderer.{0}; prime-rl: {0} in "[orchestrator.renderer]"'


def with_lenient_renderer(config: TrainClientConfig) -> TrainClientConfig:
    """The same configuration, which reads malformed calls."""
    return config.model_copy(update={"renderer": lenient(config.renderer)})


@dataclass(frozen=True)
class RendererAbilities:
    """Holds what can be done with a renderer, found by trying it."""

    name: str
    continues: bool
    """Whether it continues what was sampled before, token for token."""
    continues_for_user: bool
    """Whether it does when a user speaks; else it does for results of tools only."""
    continues_for_several: bool
    """Whether it does behind an answer with several calls."""
    reads_images: bool


_warned: set[RendererAbilities] = set()
_known: dict[tuple[Any, ...], RendererAbilities] = {}
"""By what a renderer is built from: trying one takes a moment, and every rollout asks."""


def renderers_of(client: TrainClientConfig, ctx: ModelContext) -> ElasticRendererPool:
    """The lenient renderers of a training client, which the process shares."""
    config = with_lenient_renderer(client)
    return ElasticRendererPool(
        config.renderer_model_name or ctx.model,
        config.renderer,
        chat_template_kwargs=ctx.sampling.model_dump(exclude_none=True).get("chat_template_kwargs"),
        multiplex=config.multiplex,
    )


async def renderer_abilities(ctx: ModelContext) -> RendererAbilities | None:
    """Return what the renderer of a training client can do; None for any other client.

    Raises:
        ValueError: the renderer cannot be built.
    """
    if not isinstance(ctx.client, TrainClientConfig):
        return None
    pool = renderers_of(ctx.client, ctx)
    if pool.key not in _known:
        try:
            async with pool.acquire() as slot:
                _known[pool.key] = await slot.run(lambda: _tried(slot.renderer))
        except Exception as error:  # tokenizers, templates and renderers raise whatever they like
            raise ValueError(f"{type(error).__name__}: {error}") from error
    return _known[pool.key]


async def reads_images(ctx: ModelContext) -> bool | None:
    """Whether a model can be shown images; None of a chat endpoint, which does not say."""
    abilities = await renderer_abilities(ctx)
    return None if abilities is None else abilities.reads_images


def _tried(renderer: Renderer) -> RendererAbilities:
    asked: Any = [{"role": "user", "content": "word " * 16}]
    rendered = renderer.render(asked, add_generation_prompt=True)
    # Stands for an answer that was cut off: a token of text, which no frame ends.
    said = [token for token, message in zip(rendered.token_ids, rendered.message_indices, strict=True) if message == 0]
    sampled = said[len(said) // 2 :][:1] or rendered.token_ids[:1]

    def continues(*messages: dict[str, Any]) -> bool:
        tail: Any = list(messages)
        return renderer.bridge_to_next_turn(rendered.token_ids, sampled, tail) is not None

    for_user = continues({"role": "user", "content": "go on"})
    result = {"role": "tool", "content": "done", "tool_call_id": "call_0", "name": "tool"}
    return RendererAbilities(
        name=type(renderer).__name__,
        continues=for_user or continues(result),
        continues_for_user=for_user,
        continues_for_several=continues(result, {**result, "tool_call_id": "call_1"}),
        reads_images=bool(getattr(renderer, "supports_process_multimodal", False)),
    )


async def require_trainable(seats: Iterable[Agent]) -> None:
    """Look at the renderers of the seats that train.

    Raises:
        EnvError: one cannot be built, or continues nothing that was sampled.
    """
    for seat in seats:
        if isinstance(seat.ctx.client, TrainClientConfig) and "?" in seat.ctx.client.base_url:
            raise EnvError(
                f"a training client's base URL takes no query: {without_credentials(seat.ctx.client.base_url)}"
            )
        if not seat.trainable:
            continue
        try:
            abilities = await renderer_abilities(seat.ctx)
        except ValueError as error:
            what = f"the renderer of the training client for {seat.ctx.model!r}"
            raise EnvError(f"{what} cannot be built: {error}") from error
        if abilities is not None:
            _judge(abilities, seat.ctx.model)


def _judge(abilities: RendererAbilities, model: str) -> None:
    if not abilities.continues:
        raise EnvError(
            f"{abilities.name}, the renderer of the training client for {model!r}, cannot continue what was sampled: "
            "it renders the whole history again for every turn, and every turn becomes a sample of its own with all "
            f"before it once more. Name the model's own renderer, such as qwen3.5 or glm-4.5 ({_SET.format('name')}); "
            "a model without one needs a renderer that has bridge_to_next_turn"
        )
    if abilities in _warned:
        return
    _warned.add(abilities)
    if not abilities.continues_for_several:
        told = (
            "%s, the renderer of the training client for %r, renders the whole history again behind an answer with "
            "several calls: every such answer starts a sample of its own. A model that is told to make one call at a "
            "time (--env.agent.harness.system-prompt) keeps one"
        )
        logger.warning(told, abilities.name, model)
    if not abilities.continues_for_user:
        told = (
            "%s, the renderer of the training client for %r, renders the whole history again when the user speaks "
            "again, and leaves out earlier reasoning. A conversation of several segments becomes a sample for each, "
            "and so does one of a sub-agent that is resumed, or of an agent that shows an image from a tool as the "
            "user. Set thinking_retention to all (%s) to keep one"
        )
        logger.warning(told, abilities.name, model, _SET.format("thinking_retention"))


# A mark such as `<tool_call>` is a token of its own, and a model may also spell it in several: the text is the same.
# The tool parser of a chat endpoint reads text, and finds a call there; a renderer, with which a trainer reads, text.
_TAG = re.compile(r"<(?!/)[^<>\s]+>|\[TOOL_CALLS\]", re.IGNORECASE)
"""What may be a mark: read in time that grows with the text alone, since the text is the policy's."""


async def spelled_calls(ctx: ModelContext, trace: AnyTrace, first_node: int = 0) -> float | None:
    """Return how many calls of a trace were spelled, from a node on: text of it with a training client, calls of it
    with a chat endpoint.

    None where nothing tells: a chat endpoint says which tokens it has read in log-probabilities that lack none.
    """
    if not isinstance(ctx.client, TrainClientConfig):
        return _read_from_text(trace)
    answers = [node for node in trace.nodes[first_node:] if node.sampled and len(node.mask)]
    if not answers:
        return 0.0
    tools = [*{tool.name: tool_to_wire(tool) for node in trace.nodes for tool in node.tools}.values()]
    async with renderers_of(ctx.client, ctx).acquire() as slot:
        # The renderer is shared with other rollouts, so it is held for one answer at a time.
        counts = [await slot.run(partial(_read_from_tokens, slot.renderer, node, tools)) for node in answers]
        return float(sum(counts))


def _read_from_tokens(renderer: Any, node: MessageNode, tools: Sequence[Any]) -> int:
    ids, mask = [*map(int, node.token_ids)], [*map(bool, node.mask)]  # arrays, after verifiers 0.4.0
    if True not in mask:
        return 0
    begin = mask.index(True)
    spelled: int = renderer.spelled_calls(ids[:begin], ids[begin:], tools)
    return spelled


def _read_from_text(trace: AnyTrace) -> float | None:
    told = [entry for entry in trace.info.get(LOGPROBS_RECORD, ()) if _has_all_tokens(entry)]
    return float(sum(_spelled(trace, entry) for entry in told)) if told else None


def _has_all_tokens(entry: Mapping[str, Any]) -> bool:
    sampled = entry["completion_tokens"]
    return sampled is not None and len(entry["tokens"]) >= sampled


def _spelled(trace: AnyTrace, entry: Mapping[str, Any]) -> int:
    message, tokens = trace.nodes[entry["node"]].message, entry["tokens"]
    calls = len(message.tool_calls or ()) if isinstance(message, AssistantMessage) else 0
    if not calls or not (found := sum(map(_begins_call, _TAG.findall("".join(tokens))))):
        return 0
    whole = (token.strip() for token in tokens if "<" in token or "[" in token)
    marks = sum(_TAG.fullmatch(token) is not None and _begins_call(token) for token in whole)
    return max(0, min(found - marks, calls - marks))


def _begins_call(tag: str) -> bool:
    """Whether a call begins with it, in families of models that have a token for that."""
    tag = tag.lower()
    return tag in ("[tool_calls]", "<|python_tag|>") or ("end" not in tag and "call" in tag.partition("tool")[2])

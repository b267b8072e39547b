"""verifiers' training client as this project uses it, and what the renderer behind it can do.

Invariant: an answer is what the engine sampled, whole and with its evidence, or it is a failed call.
"""

from dataclasses import dataclass
from typing import Any

from renderers import Renderer
from verifiers.v1.clients import (
    BaseClientConfig,
    Client,
    EvalClientConfig,
    ModelContext,
    TrainClientConfig,
    resolve_client,
)
from verifiers.v1.clients.train import ElasticRendererPool
from verifiers.v1.errors import ProviderError
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.endpoint_http import EndpointHttp
from opencode_env.cli_agent.interception.lenient_renderer import lenient


def model_client(config: BaseClientConfig) -> Client:
    """The client of a configuration; one that trains reads malformed calls."""
    if isinstance(config, EvalClientConfig):
        return EndpointHttp(config)
    return resolve_client(_with_lenient_renderer(config) if isinstance(config, TrainClientConfig) else config)


def _with_lenient_renderer(config: TrainClientConfig) -> TrainClientConfig:
    return config.model_copy(update={"renderer": lenient(config.renderer)})


def require_evidence(call: Call, response: Response) -> Response:
    """Refuse an answer that must not be trained on.

    Raises:
        ProviderError: the engine broke it off or left out its evidence.
    """
    if call.endpoint is None or not call.endpoint.trains:
        return response
    if response.finish_reason is None:
        broken = "the engine broke its answer off: its finish reason is neither stop nor length"
        raise ProviderError(broken, status_code=503)
    if response.tokens is None or not len(response.tokens.completion_ids):
        raise ProviderError("the engine answered without a single token", status_code=503)
    return response


@dataclass(frozen=True)
class RendererAbilities:
    """What can be done with a renderer, found by trying it."""

    name: str
    continues: bool
    """Whether it continues what was sampled before, token for token."""
    continues_for_user: bool
    """Whether it does when a user speaks; else it does for results of tools only."""
    continues_for_several: bool
    """Whether it does behind an answer with several calls."""
    reads_images: bool


_known: dict[tuple[Any, ...], RendererAbilities] = {}
"""By what a renderer is built from: trying one takes a moment, and every rollout asks."""


async def renderer_abilities(ctx: ModelContext) -> RendererAbilities | None:
    """What the renderer of a training client can do; None for any other client.

    Raises:
        ValueError: the renderer cannot be built.
    """
    if not isinstance(ctx.client, TrainClientConfig):
        return None
    config = _with_lenient_renderer(ctx.client)
    pool = ElasticRendererPool(
        config.renderer_model_name or ctx.model,
        config.renderer,
        chat_template_kwargs=ctx.sampling.model_dump(exclude_none=True).get("chat_template_kwargs"),
        multiplex=config.multiplex,
    )
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

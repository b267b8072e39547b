"""Refuses at its start, by name, a run whose traces could not be trained on, and warns of one where some could not.

A training client's conversation stays one sample as long as its renderer continues what was sampled. One that renders
the whole history again has other tokens for the same text, and the trace a branch for every time.
"""

import logging
from collections.abc import Iterable

from verifiers.v1.agent import Agent
from verifiers.v1.errors import EnvError

from opencode_env.cli_agent.interception.training_client import RendererAbilities, renderer_abilities

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")

_SET = 'vf-eval: --client.renderer.{0}; prime-rl: {0} in "[orchestrator.renderer]"'
_warned: set[RendererAbilities] = set()


async def require_trainable(seats: Iterable[Agent]) -> None:
    """Look at the renderers of the seats that train.

    Raises:
        EnvError: one cannot be built, or continues nothing that was sampled.
    """
    for seat in seats:
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

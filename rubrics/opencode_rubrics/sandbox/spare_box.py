"""A second sandbox of the same rollout, for scoring: as the agent's was before the agent, or one for the tests alone.

Who runs rollouts offers them (`boxes_from`) around a rollout; whoever scores asks for one (`spare_box`). Invariant: a
spare box has the task's setup behind it and has never held an agent, and it is gone when its context ends.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import verifiers.v1 as vf

from opencode_rubrics.errors import ScoringError


@dataclass(frozen=True)
class BoxOrder:
    """In what a spare box differs from the agent's."""

    image: str | None = None
    """Container image; None is the agent's."""
    workdir: str | None = None
    """Work directory; None is the agent's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every command, over those of the task."""


Provider = Callable[[BoxOrder], AbstractAsyncContextManager[vf.Runtime]]

_PROVIDER: ContextVar[Provider | None] = ContextVar("spare_boxes", default=None)


@contextmanager
def boxes_from(provider: Provider) -> Iterator[None]:
    """Within this context, and in the tasks that start in it, `spare_box` asks `provider`."""
    before = _PROVIDER.set(provider)
    try:
        yield
    finally:
        _PROVIDER.reset(before)


def can_spare() -> bool:
    """Whether anybody offers spare boxes here."""
    return _PROVIDER.get() is not None


def spare_box(order: BoxOrder | None = None) -> AbstractAsyncContextManager[vf.Runtime]:
    """A second sandbox of the rollout that is being scored.

    Raises:
        ScoringError: nobody offers any: the environment is none of ours.
    """
    provider = _PROVIDER.get()
    if provider is None:
        raise ScoringError("this environment gives scoring no sandbox of its own: use opencode-env (--env.id)")
    return provider(order or BoxOrder())

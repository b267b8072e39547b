"""Cleanup hooks: methods that run after scoring, whatever happened before.

Invariant: `run_cleanup` calls every hook of every owner exactly once and awaits each to its end, also when
another hook raises and when the calling task is cancelled. A failure is reported, never raised, so it cannot
replace the error that ended the rollout.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import verifiers.v1 as vf
from verifiers.v1.utils.aio import run_shielded
from verifiers.v1.utils.decorators import discover_decorated, invoke, mark

logger = logging.getLogger("verifiers.v1.opencode_rubrics.cleanup")

HookT = TypeVar("HookT", bound=Callable[..., object])

_MARK = "cleanup"


class CleanupError(vf.RolloutError):
    """A cleanup hook failed; `__cause__` is what it raised."""


def cleanup(priority: int = 0, *, timeout: float | None = 60.0) -> Callable[[HookT], HookT]:
    """Mark a method, plain or async, as a cleanup hook.

    It asks by parameter name for any of `task` (task data), `trace` and `runtime`.

    Args:
        priority: Hooks of a higher priority run first.
        timeout: Seconds after which an async hook is cancelled and reported as failed. `None`: no limit.
    """
    decorator: Callable[[HookT], HookT] = mark(_MARK, cleanup_priority=priority, cleanup_timeout=timeout)
    return decorator


async def run_cleanup(owners: Iterable[object], available: Mapping[str, object]) -> list[CleanupError]:
    """Run the cleanup hooks of `owners`, highest priority first, and return the failures in that order.

    Equal priorities run in the order of `owners`, then by name. Failures are logged as well, because a
    cancelled caller never sees the list.

    Raises:
        CancelledError: the calling task was cancelled; every hook has still run.
    """
    # `discover_decorated` sorts by name and the second sort is stable, so owners keep their order.
    hooks = [hook for owner in owners for hook in discover_decorated(owner, _MARK)]
    hooks.sort(key=lambda hook: -getattr(hook, "cleanup_priority", 0))
    return await run_shielded(_run_hooks(hooks, dict(available.items())))


async def _run_hooks(hooks: list[Callable[..., object]], available: dict[str | type, Any]) -> list[CleanupError]:
    failures: list[CleanupError] = []
    for hook in hooks:
        try:
            await _run_hook(hook, available)
        # CancelledError too: only the hook itself can raise it here, or a closing event loop, and in both
        # cases the remaining hooks still have something to free.
        except (Exception, asyncio.CancelledError) as error:
            name = getattr(hook, "__qualname__", repr(hook))
            failure = CleanupError(f'cleanup hook "{name}" failed: {type(error).__name__}: {error}')
            failure.__cause__ = error
            logger.error("%s", failure, exc_info=error)
            failures.append(failure)
    return failures


async def _run_hook(hook: Callable[..., object], available: dict[str | type, Any]) -> None:
    async with asyncio.timeout(getattr(hook, "cleanup_timeout", None)):
        result = invoke(hook, available)
        if inspect.isawaitable(result):
            await result

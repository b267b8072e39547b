"""Cleanup hooks: methods that run after scoring, whatever happened before.

Invariant: `run_cleanup` calls every hook of every owner exactly once and awaits each to its end, also when
another hook raises anything, `SystemExit` included, and when the calling task is cancelled. A failure is reported, in
the log and on the trace, never raised, so it cannot replace the error that ended the rollout. Only a user's interrupt
goes on, once all hooks have run.
"""

import asyncio
import functools
import inspect
import logging
import signal
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import verifiers.v1 as vf
from rollout_sandbox.toolbox.scoring import said
from verifiers.v1.utils.aio import run_shielded
from verifiers.v1.utils.decorators import discover_decorated, invoke, mark

logger = logging.getLogger("verifiers.v1.opencode_rubrics.cleanup")

HookT = TypeVar("HookT", bound=Callable[..., object])

_MARK = "cleanup"
FAILURES_KEY = "cleanup_failures"
"""Where `trace.info` lists the hooks that failed, one text each."""


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

    Equal priorities run in the order of `owners`, then by name. Failures are logged and put on the trace in
    `available` as well, because a cancelled caller never sees the list.

    Raises:
        CancelledError: the calling task was cancelled; every hook has still run.
        KeyboardInterrupt: the user's, while a hook ran; every hook has still run.
    """
    # `discover_decorated` sorts by name and the second sort is stable, so owners keep their order.
    hooks = [hook for owner in owners for hook in discover_decorated(owner, _MARK)]
    hooks.sort(key=lambda hook: -getattr(hook, "cleanup_priority", 0))
    return await run_shielded(_run_hooks(hooks, dict(available.items())))


async def _run_hooks(hooks: list[Callable[..., object]], available: dict[str | type, Any]) -> list[CleanupError]:
    failures: list[CleanupError] = []
    interrupt: BaseException | None = None
    for hook in hooks:
        try:
            async with asyncio.timeout(getattr(hook, "cleanup_timeout", None)):
                result = invoke(hook, available)
                if inspect.isawaitable(result):
                    await result
        # Whatever it is: the remaining hooks still have something to free. CancelledError can only be the hook's own
        # here, or a closing event loop's.
        except BaseException as error:
            if _is_interrupt(error):
                interrupt = error
                continue
            name = getattr(hook, "__qualname__", repr(hook))
            failure = CleanupError(f'cleanup hook "{name}" failed: {type(error).__name__}: {said(error)}')
            failure.__cause__ = error
            logger.error("%s", failure, exc_info=error)
            failures.append(failure)
            if isinstance(trace := available.get("trace"), vf.Trace):
                trace.info.setdefault(FAILURES_KEY, []).append(str(failure))
    if interrupt is not None:
        raise interrupt
    return failures


def _is_interrupt(error: BaseException) -> bool:
    """Whether a signal handler raised it, and not the hook itself."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    if signal.default_int_handler in handlers:  # has no frame of its own
        return True
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    plain = [handler.func if isinstance(handler, functools.partial) else handler for handler in handlers]
    return codes[-1] in [getattr(handler, "__code__", None) for handler in plain]

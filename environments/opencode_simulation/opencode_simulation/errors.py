"""What can go wrong with a world, by who did it, and how a failure is told to the world's author.

`InvalidAction` is the policy's doing: the agent reads it and nothing changes. Everything else is the infrastructure's
and ends the rollout as an error, never as a reward of 0.
"""

import importlib
import traceback
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError
from rollout_sandbox.outcomes import Outcome
from verifiers.v1.errors import ToolsetError


class CallRefused(Exception):
    """The call changed nothing; the text is for the agent."""


class InvalidAction(Exception):
    """A tool call that the world refuses: its text is the agent's answer, and the world has not changed."""


class WorldError(ToolsetError):
    """A world failed: it raised, hung, or gave what is not JSON, or its server died."""

    outcome = Outcome(
        "a world could not be reset, or its server died in it",
        "mend the world or the row's `config`; the message says its last words",
        also="the agent was not started",
    )


class BrokenWorldError(WorldError):
    """A world failed after its agent could act on it. What the agent did may have broken it, so `--env.retries` leaves
    it alone unless a rule says otherwise: else an agent could have a bad episode played again."""

    outcome = Outcome(
        "a world's tool raised, hung (`call_timeout`) or gave a wrong type; its server died",
        "mend it; the agent may have done that",
        again=False,
    )


class ToolMismatchError(ToolsetError):
    """The simulation and the production server do not offer the same tools."""

    outcome = Outcome(
        "a world differs from its `PRODUCTION`", "the text names tool and parameter", also="before anything runs"
    )


class SignatureMismatchError(ToolsetError):
    """A tool of the simulation takes other parameters than the one of the production server."""

    outcome = ToolMismatchError.outcome


_LONGEST_ERROR = 1000
"""Characters of what was raised: a world may quote what its agent gave, which may be megabytes."""
_LONGEST_TRACEBACK = 1800
"""Characters of where; the frames nearest to the failure are kept."""
_INFRASTRUCTURE = (Path(__file__).parent, Path(importlib.__file__).parent)
"""Frames in these files say nothing of a world; those in folders below, such as the samples, do."""


def failure_text(error: BaseException) -> str:
    """Return what was raised, and behind it the frames of the world's code, those of its causes first."""
    frames = list(_frames(error))
    kept: list[str] = []
    for frame in reversed(frames):
        if sum(map(len, kept)) + len(frame) > _LONGEST_TRACEBACK:
            break
        kept.insert(0, frame)
    head = ["Traceback (most recent call last):", *(["  ..."] if len(kept) < len(frames) else [])] if kept else []
    return "\n".join([said(error), *head, *kept])


def said(error: BaseException) -> str:
    """Return what was raised, in one bounded text that can be sent."""
    if isinstance(error, WorldError):
        return str(error)
    if isinstance(error, ValidationError) and error.title == "LedgerEntry":
        problem = error.errors(include_url=False)[0]
        return f"gave a step whose {'.'.join(map(str, problem['loc']))} is wrong: {problem['msg']}"
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - it is the world's class, and so is its __str__
        text = f"{type(error).__name__}: (its text cannot be had)"
    return _sendable(text[:_LONGEST_ERROR])


def _frames(error: BaseException) -> Iterator[str]:
    stack = traceback.extract_tb(error.__traceback__)
    while stack and (stack[0].filename.startswith("<frozen ") or Path(stack[0].filename).parent in _INFRASTRUCTURE):
        del stack[0]
    if not stack and error.__cause__ is None:
        return
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and (before := list(_frames(cause))):
        yield from before
        yield f"  {said(cause)[:200]}, and then:"
    yield from (_sendable(frame.rstrip("\n")) for frame in stack.format())


def _sendable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()

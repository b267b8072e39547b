"""`python -m rollout_sandbox.conformance RUNTIME [--option NAME=VALUE …]`: yes or no to each promise."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence

from pydantic import ValidationError
from verifiers.v1.errors import TaskError

from rollout_sandbox.conformance import PROMISES, Broken, NotAsked, Promise, Subject

_KEPT, _BROKEN, _CANNOT_RUN = 0, 1, 2
_MOST_SECONDS = 300.0
"""For one promise."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m rollout_sandbox.conformance", description=__doc__.partition(": ")[2])
    parser.add_argument(
        "runtime",
        metavar="RUNTIME",
        help="confined, podman, a type that verifiers knows, or the import path of a backend: package.module.Backend",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the runtime's configuration, such as image=NAME; the value is JSON or text; repeatable",
    )
    parser.add_argument("-k", metavar="WORD", default="", help="only the promises whose name or text has this word")
    parser.add_argument("--list", action="store_true", help="print the promises, and check nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite: 0 when no promise is broken, 1 when one is, 2 when the runtime cannot be started."""
    options = build_parser().parse_args(arguments)
    chosen = [one for one in PROMISES if options.k.lower() in f"{one.name} {one.text}".lower()]
    if options.list:
        _say("\n".join(f"{one.name}: {one.text}" for one in chosen))
        return _KEPT
    subject = Subject(options.runtime, dict(map(_option, options.option)))
    return asyncio.run(_checked(subject, chosen))


def _option(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


async def _checked(subject: Subject, promises: Sequence[Promise]) -> int:
    try:
        async with subject.box():
            pass
    except (TaskError, ImportError, AttributeError, ValidationError) as error:
        _say(f"runtime {subject.runtime} cannot be started: {error}")
        return _CANNOT_RUN
    counts = dict.fromkeys(("yes", "NO", "not asked"), 0)
    for one in promises:
        answer, reason = await answered(subject, one)
        counts[answer] += 1
        _say(f"{answer:<10}{one.text} ({one.name})")
        if reason:
            _say(f"{'':<10}  {reason}")
        if answer == "NO":
            _say(f"{'':<10}  to change: {one.change}")
    _say(f"\n{subject.runtime}: {counts['yes']} kept, {counts['NO']} broken, {counts['not asked']} not asked")
    return _BROKEN if counts["NO"] else _KEPT


async def answered(subject: Subject, one: Promise) -> tuple[str, str]:
    """Whether the runtime keeps a promise, and the reason if not; whatever it raises by itself breaks it, too."""
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            await one.check(subject)
    except NotAsked as reason:
        return "not asked", str(reason)
    except Broken as seen:
        return "NO", f"seen: {seen}"
    except Exception as error:  # noqa: BLE001 - of a runtime that somebody else wrote
        return "NO", f"seen: {type(error).__name__}: {error}"
    return "yes", ""


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())

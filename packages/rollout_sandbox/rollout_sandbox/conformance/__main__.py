"""The command `python -m rollout_sandbox.conformance RUNTIME [--option NAME=VALUE …] [pytest options]`."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from verifiers.v1.errors import TaskError

from rollout_sandbox.conformance.plugin import add_options, run_suite, subject_of
from rollout_sandbox.conformance.subject import Subject

_CANNOT_RUN = 2


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m rollout_sandbox.conformance",
        description="Check a runtime against what a sandbox for agents has to promise.",
        epilog="Every other option is one of pytest's (pytest --help): -v prints each promise, -k WORD chooses some.",
    )

    def add(name: str, **options: object) -> None:
        parser.add_argument("runtime" if name == "--runtime" else name, **options)  # type: ignore[arg-type]

    add_options(add)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite: 0 when no promise is broken, 1 when one is, 2 when the runtime cannot be started."""
    options, others = build_parser().parse_known_args(arguments)
    try:
        asyncio.run(_start(subject_of(options)))
    except (TaskError, ImportError, AttributeError, ValidationError) as error:
        sys.stdout.write(f"runtime {options.runtime} cannot be started: {error}\n")
        return _CANNOT_RUN
    chosen = ["--runtime", options.runtime, *(word for one in options.option for word in ("--option", one))]
    return run_suite(Path(__file__).parent, "rollout_sandbox.conformance.plugin", [*chosen, *others])


async def _start(subject: Subject) -> None:
    async with subject.box():
        pass


if __name__ == "__main__":
    sys.exit(main())

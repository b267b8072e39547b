"""The command `opencode-trainable`."""

import argparse
from collections.abc import Sequence

from opencode_runs.command import exit_code_of, print_answer, warn
from opencode_runs.traces.errors import NothingUsableError
from opencode_runs.trainable.inspection import inspect
from opencode_runs.trainable.parser import PROG, build_parser
from opencode_runs.trainable.text import report_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (None: those of the process) and return the exit code."""
    options = build_parser().parse_args(arguments)
    return exit_code_of(PROG, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    allowed = frozenset(options.allow)
    report = inspect(options.runs, max_tokens=options.max_tokens, vocabulary=options.vocab_size, allowed=allowed)
    warn(line for run in report.runs for line in run.warnings())
    if not report.summary.episodes:
        raise NothingUsableError("the runs hold no episode yet: wait for the first rollout to end")
    print_answer(report, report_text(report, options.rows or None), as_json=options.json)
    if not options.check:
        return
    wrong = [finding.flaw for finding in report.findings if finding.fails]
    if wrong:
        raise NothingUsableError(f"a trainer must not use this: {', '.join(wrong)}")
    if not report.usable:
        raise NothingUsableError("nothing would train: no trace succeeded with a seat that trains")

"""The command line of `opencode-trainable`."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from opencode_runs.console_command import (
    Parser,
    exit_code_of,
    number,
    positive,
    print_answer,
    short,
    table,
    warn,
    whole,
)
from opencode_runs.errors import NothingUsableError
from opencode_runs.trainable.findings import MEANINGS, Flaw, Report, TraceFigures
from opencode_runs.trainable.inspection import inspect

HEADER = (
    "task", "trace", "seat", "turns", "branches", "prompt", "trained", "logprobs", "forks", "reward", "advantage",
    "trains",
)  # fmt: skip


def report_text(report: Report, limit: int | None) -> str:
    """A line per trace, at most `limit` of them, then the summary and what was found."""
    parts = [table(HEADER, [_row(trace) for trace in report.traces[:limit]])]
    if limit is not None and len(report.traces) > limit:
        parts.append(f"… {len(report.traces) - limit:,} more traces (all with --rows 0 or --json)")
    forked = [trace for trace in report.traces if trace.fork_notes][:limit]
    parts += [f"fork of {trace.trace[:8]}: {note}" for trace in forked for note in trace.fork_notes]
    summary = report.summary
    unused = Counter(summary.unused).most_common()
    left_out = f"; not: {', '.join(f'{reason} {count:,}' for reason, count in unused)}" if unused else ""
    tokens = summary.prompt_tokens + summary.trained_tokens
    compacted = f" ({summary.sections:,} sections, {summary.summaries:,} summaries)" if summary.sections else ""
    parts += [
        "",
        f"traces   {summary.trained_traces:,} of {summary.traces:,} train, of {summary.episodes:,} episodes{left_out}",
        f"samples  {summary.samples:,}{compacted} of {summary.branches:,} branches, {tokens:,} tokens: "
        f"{summary.trained_tokens:,} train ({_share(summary.trained_tokens, tokens)}), "
        f"{_share(summary.logprobs, summary.trained_tokens)} of them with a logprob; {summary.forks:,} forks",
        f"groups   {summary.groups_with_spread:,} of {summary.groups:,} have a spread of rewards",
    ]
    for finding in report.findings:
        mark = "not for training" if finding.fails else "note"
        parts += ["", f"{mark}: {finding.flaw} ({finding.count:,}): {finding.what}"]
        parts += [f"  {place}" for place in finding.places]
        parts += [f"  … and {finding.count - len(finding.places):,} more"] * (finding.count > len(finding.places))
        parts.append(f"  what to do: {finding.do}")
    return "\n".join(parts)


def _row(trace: TraceFigures) -> list[str]:
    # Of an evaluation endpoint, the tokens that it sampled.
    trained = trace.sampled_tokens if trace.trained_tokens is None else trace.trained_tokens
    parts = f" ({trace.sections}+{trace.summaries})" if trace.sections else ""
    return [
        short(trace.task), trace.trace[:8], trace.seat, f"{trace.turns:,}", f"{trace.branches:,}{parts}",
        number(trace.prompt_tokens, ","), number(trace.trained_tokens, ","), _share(trace.logprobs, trained),
        f"{trace.forks or '-'}", number(trace.reward, ".2f"), number(trace.advantage, "+.3f"),
        "yes" if trace.unused_because is None else f"no: {short(trace.unused_because)}",
    ]  # fmt: skip


def _share(part: int | None, whole: int) -> str:
    return "-" if part is None or not whole else f"{part / whole:.0%}"


_PROG = "opencode-trainable"
_DESCRIPTION = """\
Show what a trainer would get from runs, before an expensive one: for each trace its branches, prompt and trained
tokens, logprobs, forks and why, reward and advantage; then what it must not use.

A sample is one branch of a trace; a turn of the model trains in the first branch that holds it. Of a conversation that
was compacted, each section and each summary is one: 5 (3+2) are 3 sections and 2 summaries. A trace trains when
its seat does, neither it nor its episode failed, and the model's tokens are there: they come from the training client.
The advantage is the reward less the mean over all traces of the group that train, those of sub seats included.
These are prime-rl's rules.
"""
_EPILOG = """\
what --check fails for (--allow KIND accepts one):
{flaws}

exit codes: 0 answered, and with --check nothing wrong; 1 something must not train, or nothing would; 2 wrong usage or
input.

examples:
  opencode-trainable outputs/my-run
  opencode-trainable outputs/my-run --check --max-tokens 32768        # the trainer's seq_len
  opencode-trainable outputs/my-run --json | jq .summary
"""


def build_parser() -> Parser:
    named = (f"  {flaw:<15} {meaning.what}" for flaw, meaning in MEANINGS.items() if meaning.fails)
    parser = Parser(prog=_PROG, description=_DESCRIPTION, epilog=_EPILOG.format(flaws="\n".join(named)))
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run, a trace file, or a folder of runs")
    parser.add_argument("--check", action="store_true", help="exit with 1 if something must not train")
    parser.add_argument(
        "--max-tokens", "--seq-len", type=positive, metavar="N",
        help="tokens to which the trainer cuts a sample (its seq_len); longer ones are found",
    )  # fmt: skip
    parser.add_argument(
        "--vocab-size", type=positive, metavar="N", help="tokens of the model's vocabulary; ids beyond it are found"
    )
    parser.add_argument(
        "--allow", action="append", default=[], choices=[flaw for flaw, meaning in MEANINGS.items() if meaning.fails],
        metavar="KIND", help="accept this kind of finding; repeatable", type=Flaw,
    )  # fmt: skip
    parser.add_argument("--rows", type=whole, default=20, metavar="N", help="traces to list (0: all; default 20)")
    parser.add_argument("--json", action="store_true", help="print the whole answer as one JSON object")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (None: those of the process) and return the exit code."""
    options = build_parser().parse_args(arguments)
    return exit_code_of(_PROG, lambda: _run(options))


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


if __name__ == "__main__":
    raise SystemExit(main())

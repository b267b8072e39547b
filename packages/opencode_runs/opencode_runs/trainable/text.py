"""The report as text for a terminal."""

from collections import Counter

from opencode_runs.tables import short, table
from opencode_runs.trainable.figures import Report, Summary, TraceFigures

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
    parts += ["", *_summary(report.summary)]
    for finding in report.findings:
        mark = "not for training" if finding.fails else "note"
        parts += ["", f"{mark}: {finding.flaw} ({finding.count:,}): {finding.what}"]
        parts += [f"  {place}" for place in finding.places]
        parts += [f"  … and {finding.count - len(finding.places):,} more"] * (finding.count > len(finding.places))
        parts.append(f"  what to do: {finding.do}")
    return "\n".join(parts)


def _row(trace: TraceFigures) -> list[str]:
    return [
        short(trace.task), trace.trace[:8], trace.seat, f"{trace.turns:,}", f"{trace.branches:,}",
        _number(trace.prompt_tokens), _number(trace.trained_tokens), _coverage(trace), f"{trace.forks or '-'}",
        "-" if trace.reward is None else f"{trace.reward:.2f}",
        "-" if trace.advantage is None else f"{trace.advantage:+.3f}",
        "yes" if trace.unused_because is None else f"no: {short(trace.unused_because)}",
    ]  # fmt: skip


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _coverage(trace: TraceFigures) -> str:
    """The share of the trained tokens, or of those that an evaluation endpoint sampled, with a logprob."""
    return _share(trace.logprobs, trace.sampled_tokens if trace.trained_tokens is None else trace.trained_tokens)


def _share(part: int | None, whole: int) -> str:
    return "-" if part is None or not whole else f"{part / whole:.0%}"


def _summary(summary: Summary) -> list[str]:
    unused = Counter(summary.unused).most_common()
    left_out = f"; not: {', '.join(f'{reason} {count:,}' for reason, count in unused)}" if unused else ""
    tokens = summary.prompt_tokens + summary.trained_tokens
    return [
        f"traces   {summary.trained_traces:,} of {summary.traces:,} train, of {summary.episodes:,} episodes{left_out}",
        f"samples  {summary.samples:,} of {summary.branches:,} branches, {tokens:,} tokens: "
        f"{summary.trained_tokens:,} train ({_share(summary.trained_tokens, tokens)}), "
        f"{_share(summary.logprobs, summary.trained_tokens)} of them with a logprob; {summary.forks:,} forks",
        f"groups   {summary.groups_with_spread:,} of {summary.groups:,} have a spread of rewards",
    ]

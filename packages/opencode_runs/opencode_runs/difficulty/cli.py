"""The command `opencode-difficulty`."""

import argparse
from collections.abc import Sequence
from dataclasses import fields

from opencode_runs.command import exit_code_of, print_answer, warn
from opencode_runs.difficulty.parser import build_parser
from opencode_runs.traces.errors import BadInputError, NothingUsableError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (None: those of the process) and return the exit code."""
    options = build_parser().parse_args(arguments)
    name = f"opencode-difficulty {options.command}"
    return exit_code_of(name, lambda: _COMMANDS[options.command](options))


def _rate(options: argparse.Namespace) -> None:
    from opencode_runs.difficulty.figures import figures
    from opencode_runs.difficulty.rate import rate
    from opencode_runs.difficulty.text import rate_text

    rating = rate(options.runs, threshold=options.threshold, seat=options.seat)
    answer = figures(rating, options.k)
    warn(line for run in answer.runs for line in run.warnings())
    warn([line for source in answer.sources for line in source.mixtures])
    if not rating.sources:
        raise NothingUsableError("the runs hold no episode")
    print_answer(answer, rate_text(answer, options.rows or None), as_json=options.json)
    if not rating.attempts:
        raise NothingUsableError("no attempt: every try ended in an error or without a reward")


def _join(options: argparse.Namespace) -> None:
    # Task keys need the taskset, which imports verifiers: seconds that the other commands save.
    try:
        from opencode_runs.difficulty.join.join import join, join_text, join_warnings
    except ModuleNotFoundError as error:
        raise BadInputError(f"join reads datasets as the taskset does ({error}): install opencode-runs[join]") from None
    from opencode_runs.difficulty.join.options import JoinOptions

    options.taskset = dict(options.taskset)
    chosen = JoinOptions(**{field.name: getattr(options, field.name) for field in fields(JoinOptions)})
    answer = join(options.dataset, options.runs, options.output, chosen)
    warn(line for run in answer.runs for line in run.warnings())
    warn(join_warnings(answer))
    print_answer(answer, join_text(answer), as_json=options.json)


def _show(options: argparse.Namespace) -> None:
    from opencode_runs.difficulty.bands import show, show_text, write_png
    from opencode_runs.difficulty.outputs import check_output
    from opencode_runs.difficulty.rated import open_rated
    from opencode_runs.difficulty.thresholds import Thresholds

    if options.png is not None:
        check_output(options.png, force=options.force)
    thresholds = Thresholds(options.hard_below, options.easy_above)
    answer = show(open_rated(options.rated, options.column), thresholds, bins=options.bins, first=options.rows)
    if options.png is not None and answer.rated:
        write_png(answer, thresholds, options.png)
    print_answer(answer, show_text(answer), as_json=options.json)
    if not answer.rated:
        raise NothingUsableError(f'no row of "{options.rated}" is rated')


def _split(options: argparse.Namespace) -> None:
    from opencode_runs.difficulty.bands import split
    from opencode_runs.difficulty.rated import open_rated
    from opencode_runs.difficulty.thresholds import Thresholds

    thresholds = Thresholds(options.hard_below, options.easy_above)
    answer = split(open_rated(options.rated, options.column), thresholds, options.output, force=options.force)
    lines = [f"{file.path}: {file.rows:,} rows ({file.condition})" for file in answer.files.values()]
    print_answer(answer, "\n".join(lines), as_json=options.json)


def _recommend(options: argparse.Namespace) -> None:
    from opencode_runs.difficulty.posterior import Prior
    from opencode_runs.difficulty.rated import open_rated
    from opencode_runs.difficulty.recommend import recommend, recommend_text

    answer = recommend(
        open_rated(options.rated, options.column),
        group=options.group_size,
        probability=options.probability,
        criterion=options.by,
        credible=options.credible,
        prior=Prior(*options.prior),
    )
    print_answer(answer, recommend_text(answer), as_json=options.json)


_COMMANDS = {"rate": _rate, "join": _join, "show": _show, "split": _split, "recommend": _recommend}

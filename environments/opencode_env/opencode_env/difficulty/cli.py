"""The command `opencode-difficulty`: answers on stdout, warnings and progress on stderr, an exit code.

Invariant: whatever is wrong with the input ends in one line on stderr; no traceback, and no file half written.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import fields

from pydantic import BaseModel

from opencode_env.difficulty.errors import INTERRUPTED, OK, DifficultyError, NothingUsableError
from opencode_env.difficulty.parser import build_parser
from opencode_env.difficulty.rate import RunReport


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (None: those of the process) and return the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        _COMMANDS[options.command](options)
    except DifficultyError as error:
        print(f"opencode-difficulty {options.command}: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, say) has seen enough; what Python still flushes at exit must go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def _rate(options: argparse.Namespace) -> None:
    from opencode_env.difficulty.figures import figures
    from opencode_env.difficulty.rate import rate
    from opencode_env.difficulty.text import rate_text

    rating = rate(options.runs, threshold=options.threshold, seat=options.seat)
    answer = figures(rating, options.k)
    _warn_runs(answer.runs)
    _warn([line for source in answer.sources for line in source.mixtures])
    if not rating.sources:
        raise NothingUsableError("the runs hold no episode")
    _answer(answer, options, rate_text(answer, options.rows or None))
    if not rating.attempts:
        raise NothingUsableError("no attempt: every try ended in an error or without a reward")


def _join(options: argparse.Namespace) -> None:
    # Task keys need the taskset, which imports verifiers: seconds that the other commands save.
    from opencode_env.difficulty.join import join, join_text, join_warnings
    from opencode_env.difficulty.join_options import JoinOptions

    options.taskset = dict(options.taskset)
    chosen = JoinOptions(**{field.name: getattr(options, field.name) for field in fields(JoinOptions)})
    answer = join(options.dataset, options.runs, options.output, chosen)
    _warn_runs(answer.runs)
    _warn(join_warnings(answer))
    _answer(answer, options, join_text(answer))


def _show(options: argparse.Namespace) -> None:
    from opencode_env.difficulty.bands import Thresholds, show, show_text, write_png
    from opencode_env.difficulty.outputs import check_output
    from opencode_env.difficulty.rated import open_rated

    if options.png is not None:
        check_output(options.png, force=options.force)
    thresholds = Thresholds(options.hard_below, options.easy_above)
    answer = show(open_rated(options.rated, options.column), thresholds, bins=options.bins, first=options.rows)
    if options.png is not None and answer.rated:
        write_png(answer, thresholds, options.png)
    _answer(answer, options, show_text(answer))
    if not answer.rated:
        raise NothingUsableError(f'no row of "{options.rated}" is rated')


def _split(options: argparse.Namespace) -> None:
    from opencode_env.difficulty.bands import Thresholds, split
    from opencode_env.difficulty.rated import open_rated

    thresholds = Thresholds(options.hard_below, options.easy_above)
    answer = split(open_rated(options.rated, options.column), thresholds, options.output, force=options.force)
    lines = [f"{file.path}: {file.rows:,} rows ({file.condition})" for file in answer.files.values()]
    _answer(answer, options, "\n".join(lines))


def _recommend(options: argparse.Namespace) -> None:
    from opencode_env.difficulty.posterior import Prior
    from opencode_env.difficulty.rated import open_rated
    from opencode_env.difficulty.recommend import recommend, recommend_text

    answer = recommend(
        open_rated(options.rated, options.column),
        group=options.group_size,
        probability=options.probability,
        criterion=options.by,
        credible=options.credible,
        prior=Prior(*options.prior),
    )
    _answer(answer, options, recommend_text(answer))


_COMMANDS = {"rate": _rate, "join": _join, "show": _show, "split": _split, "recommend": _recommend}


def _answer(answer: BaseModel, options: argparse.Namespace, text: str) -> None:
    print(answer.model_dump_json(indent=2) if options.json else text, flush=True)  # noqa: T201


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)  # noqa: T201


def _warn_runs(runs: Sequence[RunReport]) -> None:
    for run in runs:
        if run.unreadable:
            end = "; the last line is cut off" if run.truncated_end else ""
            _warn([f'"{run.path}": {run.unreadable:,} lines could not be read ({"; ".join(run.complaints)}){end}'])
        if run.duplicates:
            _warn([f'"{run.path}": {run.duplicates:,} episodes were seen before and count once'])
        if not run.episodes and not run.duplicates:
            _warn([f'"{run.path}": the run has no episode yet'])

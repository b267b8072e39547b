"""The command `opencode-difficulty`."""

import argparse
import math
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from opencode_runs.console_command import Parser, check_output, checked, exit_code_of, print_answer, warn, whole
from opencode_runs.errors import BadInputError, NothingUsableError

_DESCRIPTION = """\
Measure how hard each task is for a model, keep the answer with the dataset, and train on the band that teaches.

  rate       group the episodes of eval runs by task: reward, pass rate, pass@k, turns, length, errors apart
  join       write the dataset back as Parquet with these figures (avg_reward, attempts, passes, ...)
  show       histogram and bands of a joined file
  split      one file per band: hard, medium, easy, unrated
  recommend  the band whose groups of G are likely to have mixed outcomes
"""
_EPILOG = """\
exit codes: 0 answered; 1 readable but nothing usable in it; 2 wrong usage or input. With 1 and 2 no file is written.

the loop:
  vf-eval opencode-env --env.taskset.dataset tasks.jsonl -m my-model -r 8 --run.name rate --no-push
  opencode-difficulty rate outputs/rate
  opencode-difficulty join tasks.jsonl outputs/rate -o rated.parquet
  opencode-difficulty recommend rated.parquet -G 8
  vf-eval opencode-env --env.taskset.dataset rated.parquet --env.taskset.difficulty-key avg_reward \\
      --env.taskset.min-avg-reward 0.2 --env.taskset.max-avg-reward 0.8
"""
RATE_HELP = """\
A try counts as an attempt when the main seat's trace is sound and scored; an agent that ran out of time made an
attempt. What the infrastructure did (errors; setup, finalize and scoring timeouts; no reward) is shown apart and never
counts as a failure. Traces of a seat named "sub" are not attempts. An attempt passes at reward >= --threshold.

examples:
  opencode-difficulty rate outputs/my-run
  opencode-difficulty rate outputs/small outputs/large --rows 0     # two models side by side, every task
  opencode-difficulty rate outputs/my-run --threshold 0.5 --json > figures.json
"""
JOIN_HELP = """\
Rows are matched by the task key, which is computed as OpenCodeTaskset does, with the column options of the runs'
saved configs; then by id. Every row is written, in order; what matches nothing is counted and named.
Columns: avg_reward, reward_stderr, attempts, passes, pass_rate, mean_turns, mean_tokens, timed_out, errors,
unscored, pass_at_K. A row without a task is null in all of them, a task without an attempt in avg_reward.

examples:
  opencode-difficulty join tasks.jsonl outputs/my-run -o rated.parquet
  opencode-difficulty join tasks.parquet outputs/small outputs/large --per-model -o rated.parquet
  opencode-difficulty join other.csv outputs/my-run --id-key uid -o rated.parquet
"""
SHOW_HELP = """\
examples:
  opencode-difficulty show rated.parquet
  opencode-difficulty show rated.parquet --column small_avg_reward --png small.png
"""
SPLIT_HELP = """\
The medium band has both its ends, as the taskset's filter does. All four files are written, also empty ones.

examples:
  opencode-difficulty split rated.parquet -o bands
  opencode-difficulty split rated.parquet -o bands --hard-below 0.1 --easy-above 0.9
"""
RECOMMEND_HELP = """\
A group of G attempts teaches a group-relative learner only if some pass and some fail. After c passes in n attempts
the task's pass rate is Beta(1/2+c, 1/2+n-c) distributed; P(mixed) is the mean of 1 - q^G - (1-q)^G over it, and its
interval holds 90 % of the posterior. A task with 0 of 8 passes may still be worth a group, one with 0 of 64 hardly: the
attempts seen decide. The band runs from the least to the greatest mean reward of the tasks with P(mixed) >= -p. A
task with so few attempts that it would teach whatever their outcome is not said to.

examples:
  opencode-difficulty recommend rated.parquet -G 16
  opencode-difficulty recommend rated.parquet -G 16 -p 0.8
"""


def build_parser() -> Parser:
    parser = Parser(prog="opencode-difficulty", description=_DESCRIPTION, epilog=_EPILOG)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, (summary, epilog, add_options, _) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary, epilog=epilog)
        command.add_argument("--json", action="store_true", help="print the whole answer as one JSON object")
        add_options(command)
    return parser


_finite = checked(float, math.isfinite, "is not a finite number")
_share = checked(float, lambda value: 0 < value < 1, "does not lie between 0 and 1")
_group = checked(int, lambda value: value >= 2, "is too small: a group needs at least 2 attempts")


def _pair(text: str) -> tuple[str, str]:
    option, equals, column = text.partition("=")
    if not equals or not column:
        raise argparse.ArgumentTypeError(f"{text!r} is not OPTION=COLUMN")
    return option.replace("-", "_"), column


def _rate_options(parser: Parser) -> None:
    _add_runs(parser)
    parser.add_argument("--rows", type=whole, default=20, metavar="N", help="tasks to list (0: all; default 20)")


def _join_options(parser: Parser) -> None:
    parser.add_argument("dataset", help="local dataset: .jsonl, .parquet, .csv, folder, glob, saved datasets folder")
    _add_runs(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.parquet", help="file to write")
    parser.add_argument("--model", help="the model whose figures are written, if the runs have several")
    parser.add_argument("--env", help="the env whose figures are written, if the runs have several")
    parser.add_argument("--per-model", action="store_true", help="write all, with the model as column prefix")
    parser.add_argument("--id-key", metavar="COLUMN", help="column of the ids that tasks carry (default id)")
    parser.add_argument(
        "--taskset", type=_pair, action="append", default=[], metavar="OPTION=COLUMN",
        help="a column option of the taskset, such as question_key=problem, if the runs' configs do not say it",
    )  # fmt: skip
    parser.add_argument("--replace-columns", action="store_true", help="replace figures that the dataset has already")
    _add_force(parser)


def _show_options(parser: Parser) -> None:
    _add_rated(parser)
    _add_band(parser)
    parser.add_argument("--rows", type=whole, default=5, metavar="N", help="rows to list per band (default 5)")
    parser.add_argument("--png", type=Path, metavar="FILE", help="also draw a plot (needs opencode-runs[plot])")
    _add_force(parser)


def _split_options(parser: Parser) -> None:
    _add_rated(parser)
    _add_band(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder to write to")
    _add_force(parser)


def _recommend_options(parser: Parser) -> None:
    _add_rated(parser)
    parser.add_argument(
        "-G", "--group-size", type=_group, required=True, metavar="G", help="rollouts in a group of the trainer"
    )
    parser.add_argument(
        "-p",
        "--probability",
        type=_share,
        default=0.5,
        metavar="P",
        help="a task teaches if P(mixed) is at least this (default 0.5)",
    )


def _add_runs(parser: Parser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run, a trace file, or a folder of runs")
    parser.add_argument(
        "--threshold", type=_finite, default=1.0, metavar="R", help="reward at which an attempt passes (default 1)"
    )
    parser.add_argument(
        "--seat", help='seat whose traces are attempts (default "agent", else the first trainable, else the first)'
    )


def _add_rated(parser: Parser) -> None:
    parser.add_argument("rated", type=Path, metavar="RATED.parquet", help="a file written by join")
    parser.add_argument("--column", default="avg_reward", help="difficulty column (default avg_reward)")


def _add_band(parser: Parser) -> None:
    parser.add_argument("--hard-below", type=_finite, default=0.2, metavar="R", help="low end of medium (default 0.2)")
    parser.add_argument("--easy-above", type=_finite, default=0.8, metavar="R", help="high end of medium (default 0.8)")


def _add_force(parser: Parser) -> None:
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (None: those of the process) and return the exit code."""
    options = build_parser().parse_args(arguments)
    (*_, work) = _COMMANDS[options.command]
    return exit_code_of(f"opencode-difficulty {options.command}", lambda: work(options))


def _rate(options: argparse.Namespace) -> None:
    from opencode_runs.difficulty.rate import figures, rate, rate_text

    rating = rate(options.runs, threshold=options.threshold, seat=options.seat)
    answer = figures(rating)
    warn(line for run in answer.runs for line in run.warnings())
    warn([line for source in answer.sources for line in source.mixtures])
    if not rating.sources:
        raise NothingUsableError("the runs hold no episode")
    print_answer(answer, rate_text(answer, options.rows or None), as_json=options.json)
    if not rating.attempts:
        raise NothingUsableError("no attempt: every try ended in an error or without a reward")


def _join(options: argparse.Namespace) -> None:
    # Task keys are the taskset's, which is a distribution above this one.
    found = entry_points(group="opencode_runs.difficulty", name="join")
    if not found:
        raise BadInputError("join reads datasets as the taskset of opencode-env does: install opencode-env")
    work: Callable[[argparse.Namespace], None] = found["join"].load()
    work(options)


def _show(options: argparse.Namespace) -> None:
    from opencode_runs.difficulty.rate import Thresholds
    from opencode_runs.difficulty.rated import RatedFile, show, show_text, write_png

    if options.png is not None:
        check_output(options.png, force=options.force)
    thresholds = Thresholds(options.hard_below, options.easy_above)
    answer = show(RatedFile(options.rated, options.column), thresholds, first=options.rows)
    if options.png is not None and answer.rated:
        write_png(answer, thresholds, options.png)
    print_answer(answer, show_text(answer), as_json=options.json)
    if not answer.rated:
        raise NothingUsableError(f'no row of "{options.rated}" is rated')


def _split(options: argparse.Namespace) -> None:
    from opencode_runs.difficulty.rate import Thresholds
    from opencode_runs.difficulty.rated import RatedFile, split

    thresholds = Thresholds(options.hard_below, options.easy_above)
    answer = split(RatedFile(options.rated, options.column), thresholds, options.output, force=options.force)
    lines = [f"{file.path}: {file.rows:,} rows ({file.condition})" for file in answer.files.values()]
    print_answer(answer, "\n".join(lines), as_json=options.json)


def _recommend(options: argparse.Namespace) -> None:
    from opencode_runs.difficulty.rated import RatedFile, recommend, recommend_text

    rated = RatedFile(options.rated, options.column)
    answer = recommend(rated, group=options.group_size, probability=options.probability)
    print_answer(answer, recommend_text(answer), as_json=options.json)


_COMMANDS: dict[str, tuple[str, str, Callable[[Parser], None], Callable[[argparse.Namespace], None]]] = {
    "rate": ("figures per task from eval runs", RATE_HELP, _rate_options, _rate),
    "join": ("write the dataset back with the figures", JOIN_HELP, _join_options, _join),
    "show": ("histogram and bands of a joined file", SHOW_HELP, _show_options, _show),
    "split": ("one file per band", SPLIT_HELP, _split_options, _split),
    "recommend": ("the band that teaches", RECOMMEND_HELP, _recommend_options, _recommend),
}
"""Of each subcommand: what it is, examples, its options, and what does it."""


if __name__ == "__main__":
    raise SystemExit(main())

"""The command `opencode-turns`."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from opencode_runs.console_command import (
    Parser,
    check_output,
    checked,
    exit_code_of,
    positive,
    print_answer,
    warn,
    whole,
)
from opencode_runs.errors import BadInputError, NothingUsableError

_PROG = "opencode-turns"
_DESCRIPTION = """\
Kept turns of rollouts.

  list       the kept turns of a run or folder: which can be restored, and why others cannot
  choose     some of them as a dataset for --env.taskset.dataset
  tree       the value of each turn: the mean reward of what went on from it, with an interval
"""
_EPILOG = """\
exit codes: 0 answered; 1 nothing to answer with; 2 wrong usage or input.

examples:
  vf-eval opencode-env -m my-model --env.turns.keep kept --env.turns.every 5 --run.name first
  opencode-turns list kept
  opencode-turns choose outputs/first --below 1 --turn 5 -o hard.jsonl
  vf-eval opencode-env -m my-model --env.taskset.dataset hard.jsonl -r 8 --run.name second
  opencode-turns tree outputs/first outputs/second --png values.png
"""
KEPT_HELP = "folder of kept turns, or output directory of the vf-eval that kept them"


def build_parser() -> Parser:
    parser = Parser(prog=_PROG, description=_DESCRIPTION, epilog=_EPILOG)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, summary: str) -> Parser:
        made: Parser = commands.add_parser(name, help=summary, description=summary)
        made.add_argument("--json", action="store_true", help="print the whole answer as one JSON object")
        return made

    listed = command("list", "the kept turns, with the reason of those that cannot be restored")
    chosen = command("choose", "write some of the kept turns as a dataset")
    for one in (listed, chosen):
        one.add_argument("run", type=Path, metavar="RUN", help=KEPT_HELP)
        one.add_argument(
            "--run", action="append", default=[], type=Path, dest="runs", metavar="RUN",
            help="further run with rewards: of the rollouts that kept the turns, or of continuations",
        )  # fmt: skip
        one.add_argument("--rows", type=whole, default=40, metavar="N", help="turns to print (0: all; default 40)")
    finite = checked(float, math.isfinite, "is not a finite number")
    chosen.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="file to write (.jsonl)")
    chosen.add_argument("--turn", action="append", type=int, metavar="N", help="only this turn; -1 is a rollout's last")
    chosen.add_argument("--every", type=positive, metavar="N", help="only turns that are a multiple of N")
    chosen.add_argument("--below", type=finite, metavar="R", help="only turns of rollouts with a reward below R")
    chosen.add_argument("--failed", action="store_const", dest="below", const=1.0, help="the same as --below 1")
    chosen.add_argument(
        "--spread", nargs="?", type=finite, const=1e-9, metavar="S",
        help="only turns whose continuations' rewards have a standard deviation of S (default: above 0), widest first",
    )  # fmt: skip
    chosen.add_argument("--limit", type=positive, metavar="N", help="at most N turns")
    tree = command("tree", "the value of each turn, from runs of continuations")
    tree.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="output directory of vf-eval")
    tree.add_argument("--png", type=Path, metavar="FILE", help="draw it (needs opencode-runs[plot])")
    for one in (chosen, tree):
        one.add_argument("--force", action="store_true", help="replace a file that exists")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (None: those of the process) and return the exit code."""
    options = build_parser().parse_args(arguments)
    return exit_code_of(f"{_PROG} {options.command}", lambda: _COMMANDS[options.command](options))


def _list(options: argparse.Namespace) -> None:
    from opencode_runs.turns.tree import find_turns, listing, listing_text

    found = find_turns(options.run, options.runs)
    warn(found.warnings)
    answer = listing(found, found.turns)
    print_answer(answer, listing_text(answer, options.rows or None), as_json=options.json)


def _choose(options: argparse.Namespace) -> None:
    from opencode_runs.turns.tree import choose, find_turns, listing, listing_text, write_dataset

    check_output(options.output, force=options.force)
    if options.output.suffix != ".jsonl":
        raise BadInputError(f'output "{options.output}": the dataset is lines of JSON, name it .jsonl')
    found = find_turns(options.run, options.runs)
    warn(found.warnings)
    fitting = choose(found, numbers=options.turn, every=options.every, below=options.below, spread=options.spread)
    turns = fitting[: options.limit]
    write_dataset(turns, options.output)
    answer = listing(found, turns, options.output)
    print_answer(answer, listing_text(answer, options.rows or None), as_json=options.json)


def _tree(options: argparse.Namespace) -> None:
    from opencode_runs.turns.tree import read_rollouts, tree_of, tree_text, write_png

    if options.png is not None:
        check_output(options.png, force=options.force)
    rollouts, warnings = read_rollouts(options.runs)
    warn(warnings)
    answer = tree_of(rollouts)
    if not answer.trunks:
        raise NothingUsableError("no rollout of these runs went on from a kept turn")
    if options.png is not None:
        write_png(answer, options.png)
    print_answer(answer, tree_text(answer), as_json=options.json)


_COMMANDS = {"list": _list, "choose": _choose, "tree": _tree}


if __name__ == "__main__":
    raise SystemExit(main())

"""The command `opencode-report`."""

import argparse
import sys
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from opencode_runs.console_command import Parser, Prices, check_output, checked, exit_code_of, prices_of, say, warn
from opencode_runs.errors import BadInputError

_PROG = "opencode-report"
_EPILOG = """\
A run is a directory of vf-eval, a traces.jsonl, a training run of prime-rl (each of its steps is a point in time), or a
folder of runs, in natural order. The page is one file: it fetches nothing, and opens what you click on.

examples:
  opencode-report outputs/my-run --open
  opencode-report outputs/small outputs/large -o compared.html
  opencode-report outputs/my-run --watch                          # rewritten while the evaluation runs
  opencode-report export outputs/my-run --atif trajectories       # Harbor's form, a file for each trace
  opencode-report export outputs/my-run --markdown 3f9a           # one rollout for an issue or a chat
  opencode-report bundle outputs/my-run                           # page, configuration and log for a bug report
"""
_megabytes = checked(float, lambda value: 0 < value <= 2000, "does not lie between 0 and 2000")


def _prices(text: str) -> Prices:
    try:
        return prices_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (None: those of the process) and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["export"]:
        options = _export_parser().parse_args(given[1:])
        return exit_code_of(f"{_PROG} export", lambda: _export(options))
    if given[:1] == ["bundle"]:
        options = _bundle_parser().parse_args(given[1:])
        return exit_code_of(f"{_PROG} bundle", lambda: _bundle(options))
    options = _parser().parse_args(given)
    return exit_code_of(_PROG, lambda: _report(options))


def _parser() -> Parser:
    parser = Parser(prog=_PROG, description="Write one page that shows what the agents of runs did.", epilog=_EPILOG)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run, a trace file, or a folder of runs")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PAGE.html", help="default: report.html in the (first) run"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--watch", action="store_true", help="rewrite the page whenever the runs grow, until Ctrl-C")
    parser.add_argument(
        "--max-mb", type=_megabytes, default=25.0, metavar="MB",
        help="megabytes of rollouts in the page; over it long texts are cut, then rollouts left out (default 25)",
    )  # fmt: skip
    parser.add_argument(
        "--prices", type=_prices, metavar="IN,CACHED,OUT",
        help="dollars for a million tokens read anew, read from a cache, and sampled: the page shows costs",
    )  # fmt: skip
    parser.add_argument(
        "--threshold", type=float, default=1.0, metavar="R", help="reward at which an attempt passes (default 1)"
    )
    return parser


def _export_parser() -> Parser:
    parser = Parser(
        prog=f"{_PROG} export", description="Write rollouts in another form; keys are masked as on the page."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run, a trace file, or a folder of runs")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--atif", type=Path, metavar="DIR", help="write each trace as an ATIF trajectory")
    form.add_argument(
        "--markdown",
        metavar="ID",
        help="print one rollout, by its task or the beginning of an id",
    )
    return parser


def _bundle_parser() -> Parser:
    parser = Parser(
        prog=f"{_PROG} bundle",
        description="Write one zip file for a bug report: the page, the configuration, the end of the log, versions. "
        "What looks like a key is masked; read it before you send it.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run, or its trace file")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.zip", help="default: bundle.zip in the run")
    parser.add_argument(
        "--max-mb", type=_megabytes, default=10.0, metavar="MB", help="megabytes of rollouts in the page (default 10)"
    )
    return parser


def _report(options: argparse.Namespace) -> None:
    from opencode_runs.report.writing import write_page
    from opencode_runs.traces.reading import find_runs

    first = options.runs[0]
    output = options.output or (first if first.is_dir() else first.parent) / "report.html"
    seen: object = None
    while True:
        runs = find_runs(options.runs)
        state = [(run.file.path, run.file.size) for run in runs]
        if state != seen:
            check_output(output, force=True)
            if output.resolve() in {run.file.path.resolve() for run in runs}:
                raise BadInputError(f'output "{output}" is a run that it would show: name another file')
            page = write_page(runs, output, max_mb=options.max_mb, threshold=options.threshold, prices=options.prices)
            if page.left_out:
                warn([f"{page.left_out:,} rollouts are listed without their conversation: --max-mb {options.max_mb:g}"])
            say(str(output))
            if seen is None and options.open and not webbrowser.open(output.resolve().as_uri()):
                warn([f"--open found no browser here: copy {output} to a machine that has one, or name one in BROWSER"])
            seen = state
        if not options.watch:
            return
        time.sleep(2.0)


def _bundle(options: argparse.Namespace) -> None:
    from opencode_runs.report.exporting import write_bundle
    from opencode_runs.traces.reading import find_runs

    runs = find_runs([options.run])
    if len(runs) != 1:
        raise BadInputError(f'"{options.run}" holds {len(runs)} runs: name one')
    output = options.output or (options.run if options.run.is_dir() else options.run.parent) / "bundle.zip"
    check_output(output, force=True)
    masked = write_bundle(runs[0], output, max_mb=options.max_mb)
    print(f"{output} ({masked.total():,} secrets masked)", flush=True)  # noqa: T201


def _export(options: argparse.Namespace) -> None:
    from opencode_runs.report.exporting import export_atif, print_markdown

    if options.atif is not None:
        say(f"{export_atif(options.runs, options.atif):,} trajectories in {options.atif}")
    else:
        print_markdown(options.runs, options.markdown)


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m opencode_env.conformance --harness ID [pytest options]`: the suite, whatever project it is started in."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from opencode_runs.console_command import exit_code_of
from rollout_sandbox.conformance.plugin import run_suite

_ABOUT = "Check a CLI agent against what an environment promises of any agent; exit code 0 where every promise holds."
_FURTHER = "Every other option is one of pytest's (pytest --help)."
_PLUGIN = "opencode_env.conformance.plugin"


def main() -> int:
    if {"-h", "--help"} & {*sys.argv[1:]} and find_spec("pytest") is not None:
        from opencode_env.conformance.plugin import add_options

        parser = argparse.ArgumentParser("python -m opencode_env.conformance", description=_ABOUT, epilog=_FURTHER)
        add_options(parser.add_argument)
        parser.add_argument("-k", metavar="EXPRESSION", help="only the promises whose name it fits, and what they need")
        parser.add_argument("--collect-only", action="store_true", help="list the promises, and check none")
        return exit_code_of(parser.prog, parser.print_help)
    return run_suite(Path(__file__).parent, _PLUGIN, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

"""`python -m opencode_env.conformance --harness ID [pytest options]`: the suite, whatever project it is started in."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from opencode_runs.command import exit_code_of

_ABOUT = "Check a CLI agent against what an environment promises of any agent; exit code 0 where every promise holds."
_FURTHER = "Every other option is one of pytest's (pytest --help)."


def main() -> int:
    """Run the suite; pytest's exit code, 2 when pytest is missing."""
    if find_spec("pytest") is None:
        sys.stderr.write("the conformance suite needs pytest: pip install 'opencode-env[conformance]'\n")
        return 2
    import pytest

    from opencode_env.conformance.plugin import add_options

    if {"-h", "--help"} & {*sys.argv[1:]}:
        parser = argparse.ArgumentParser("python -m opencode_env.conformance", description=_ABOUT, epilog=_FURTHER)
        add_options(parser.add_argument)
        parser.add_argument("-k", metavar="EXPRESSION", help="only the promises whose name it fits, and what they need")
        parser.add_argument("--collect-only", action="store_true", help="list the promises, and check none")
        return exit_code_of(parser.prog, parser.print_help)
    here = Path(__file__).parent
    # The settings of the project that it is started in are not for this suite.
    own = ["-c", str(here / "pytest.ini"), "--rootdir", str(here), "-p", "no:cacheprovider", "-p", "no:asyncio"]
    return int(pytest.main([*own, "-p", "opencode_env.conformance.plugin", str(here), *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m opencode_env.conformance --harness ID [pytest options]`: the suite, whatever project it is started in."""

import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    """Run the suite; pytest's exit code, 2 when pytest is missing."""
    if find_spec("pytest") is None:
        sys.stderr.write("the conformance suite needs pytest: pip install 'opencode-env[conformance]'\n")
        return 2
    import pytest

    here = Path(__file__).parent
    # The settings of the project that it is started in are not for this suite.
    own = ["-c", str(here / "pytest.ini"), "--rootdir", str(here), "-p", "no:cacheprovider", "-p", "no:asyncio"]
    return int(pytest.main([*own, "-p", "opencode_env.conformance.plugin", str(here), *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())

"""Real engines: `setup` installs them, `serve` is one until it is ended, `ask` plays what `make test-engines` asks."""

import argparse
import os
import subprocess
import sys

from scripts.engines.installation import HERE, VERSIONS, install
from scripts.engines.serving import serve


def ask(versions: list[str], arguments: list[str]) -> int:
    """Run the tests against one version after the other; returns whether one failed."""
    failed = 0
    for version in versions:
        argv = [sys.executable, "-m", "pytest", "-n", "0", "tests/engines", *arguments]
        done = subprocess.run(argv, cwd=HERE.parent.parent, env={**os.environ, "ENGINE": version}, check=False)
        failed |= done.returncode
    return int(bool(failed))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.engines", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("setup", "ask"):
        command = commands.add_parser(name)
        command.add_argument("versions", nargs="*", help=f"default: {' '.join(VERSIONS)}")
    command.add_argument("--pytest", default="", help="further arguments of pytest, separated by blanks")
    command = commands.add_parser("serve", help="further arguments go to vLLM")
    command.add_argument("version")
    command.add_argument("--port", type=int, default=8000)
    options, further = parser.parse_known_args()
    if options.command == "serve":
        serve(options.version, options.port, further)
    if further:
        parser.error(f"unknown arguments: {' '.join(further)}")
    versions = options.versions or list(VERSIONS)
    install(*versions)
    return ask(versions, options.pytest.split()) if options.command == "ask" else 0


if __name__ == "__main__":
    sys.exit(main())

"""`opencode-tbench2`: serves Terminal-Bench 2 tasks over OpenEnv's protocol."""

import sys
import textwrap

from opencode_runs.console_command import exit_code_of


def main() -> int:
    """Entry point; where tasks are and run say the `TB2_*` variables, how many at once `MAX_CONCURRENT_ENVS`."""
    return exit_code_of("opencode-tbench2", _serve)


def _serve() -> None:
    from pydantic_config import cli

    from opencode_openenv.tbench2.settings import VARIABLES, Tbench2ServerConfig

    try:
        config = cli(Tbench2ServerConfig)
    except SystemExit as end:
        if not end.code:  # of --help
            sys.stdout.write("\nenvironment variables:\n")
            for name, meaning in VARIABLES.items():
                sys.stdout.write(textwrap.fill(meaning, 80, initial_indent=f"  {name:<24}", subsequent_indent=" " * 26))
                sys.stdout.write("\n")
        raise
    from opencode_openenv.openenv_server import run
    from opencode_openenv.tbench2.app import app

    run(app.serve(config))


if __name__ == "__main__":
    raise SystemExit(main())

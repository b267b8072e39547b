"""`opencode-openenv`: serves `run_rollout` over OpenEnv's protocol."""

from opencode_runs.console_command import exit_code_of


def main() -> int:
    """Entry point; a missing prerequisite is one line."""
    return exit_code_of("opencode-openenv", _serve)


def _serve() -> None:
    from pydantic_config import cli

    from opencode_openenv.settings import ServerConfig

    config = cli(ServerConfig)
    from opencode_openenv.app import app  # after --help and refused options, which need not wait for it
    from opencode_openenv.openenv_server import run

    run(app.serve(config))


if __name__ == "__main__":
    raise SystemExit(main())

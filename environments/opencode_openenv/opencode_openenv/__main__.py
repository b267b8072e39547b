"""`opencode-openenv`: serves `run_rollout` over OpenEnv's protocol."""

import asyncio


def main() -> None:
    """Entry point; a missing prerequisite is one line."""
    from pydantic_config import cli
    from verifiers.v1.errors import RolloutError

    from opencode_openenv.settings import ServerConfig

    config = cli(ServerConfig)
    from opencode_openenv.app import serve  # after --help and refused options, which need not wait for it
    from opencode_openenv.serving import log_to_stderr

    log_to_stderr()
    try:
        asyncio.run(serve(config))
    except (RolloutError, ValueError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()

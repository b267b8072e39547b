"""`python -m opencode_env.openenv.tbench2`: serves Terminal-Bench 2 tasks over OpenEnv's protocol."""

import asyncio

_INSTALL = 'the server needs the extra "openenv": pip install "opencode-env[openenv]"'


def main() -> None:
    """Entry point; where tasks are and run say the `TB2_*` variables, how many at once `MAX_CONCURRENT_ENVS`."""
    from pydantic_config import cli

    from opencode_env.openenv.tbench2.settings import Tbench2ServerConfig

    config = cli(Tbench2ServerConfig)
    try:
        from opencode_env.openenv.serving import log_to_stderr
        from opencode_env.openenv.tbench2.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("openenv", "uvicorn"):
            raise
        raise SystemExit(_INSTALL) from error
    log_to_stderr()
    try:
        asyncio.run(serve(config))
    except ValueError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()

"""`opencode-openenv`: serves `run_rollout` over OpenEnv's protocol."""

import asyncio

_INSTALL = 'opencode-openenv needs the extra "openenv": pip install "opencode-env[openenv]"'


def main() -> None:
    """Entry point; a missing prerequisite is one line."""
    from pydantic_config import cli
    from verifiers.v1.errors import RolloutError

    from opencode_env.openenv.settings import ServerConfig

    config = cli(ServerConfig)
    try:
        from opencode_env.openenv.server import serve
        from opencode_env.openenv.serving import log_to_stderr
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("openenv", "fastmcp", "uvicorn", "mcp"):
            raise
        raise SystemExit(_INSTALL) from error
    log_to_stderr()
    try:
        asyncio.run(serve(config))
    except (RolloutError, ValueError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()

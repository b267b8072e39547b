"""`opencode-openenv`: serves `run_rollout` over OpenEnv's protocol."""


def main() -> None:
    """Entry point; a missing prerequisite is one line."""
    from pydantic_config import cli

    from opencode_openenv.settings import ServerConfig

    config = cli(ServerConfig)
    from opencode_openenv.app import serve  # after --help and refused options, which need not wait for it
    from opencode_openenv.serving import run

    run(serve(config))


if __name__ == "__main__":
    main()

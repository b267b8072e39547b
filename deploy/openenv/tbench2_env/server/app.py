"""The server of Terminal-Bench 2, where OpenEnv's tools look for it."""

from opencode_openenv.tbench2.__main__ import main as serve


def main() -> None:
    """Serve; `--help` says how."""
    serve()


if __name__ == "__main__":
    main()

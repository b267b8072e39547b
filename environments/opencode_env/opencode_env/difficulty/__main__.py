"""`python -m opencode_env.difficulty`: the same as the command `opencode-difficulty`."""

from opencode_env.difficulty.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m opencode_runs.difficulty`: the same as the command `opencode-difficulty`."""

from opencode_runs.difficulty.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

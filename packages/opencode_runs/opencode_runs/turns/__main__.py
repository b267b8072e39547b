"""`python -m opencode_runs.turns`: the same as the command `opencode-turns`."""

from opencode_runs.turns.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

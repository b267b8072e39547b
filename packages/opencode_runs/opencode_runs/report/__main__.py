"""`python -m opencode_runs.report`: the same as the command `opencode-report`."""

from opencode_runs.report.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

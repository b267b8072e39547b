"""`python -m opencode_runs.trainable`: the same as the command `opencode-trainable`."""

from opencode_runs.trainable.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m opencode_env.trainable`: the same as the command `opencode-trainable`."""

from opencode_env.trainable.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

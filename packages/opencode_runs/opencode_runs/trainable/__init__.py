"""What a trainer would get from traces, and what it must not use, before an expensive run: `opencode-trainable`."""

"""Real engines on this machine's processor, in environments of their own below `.cache/engines`."""

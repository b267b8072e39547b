"""prime-rl imports it where it is not used on one process."""

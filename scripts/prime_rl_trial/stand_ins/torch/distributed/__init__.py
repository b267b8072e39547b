"""prime-rl asks it on its way out."""


def is_initialized() -> bool:
    """No process group was ever made."""
    return False

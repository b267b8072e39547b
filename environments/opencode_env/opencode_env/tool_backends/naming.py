"""Names of backends as they begin the names of their tools."""

import re


def tool_prefix(name: str) -> str:
    """The name with what a tool's name cannot hold replaced."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)

"""Shell programs of the environment that run inside a sandbox."""

from functools import cache
from importlib.resources import files


@cache
def program(name: str) -> str:
    """Text of one of them; it travels as the argument of `sh -c`, so nothing lies on a disk that an agent can write."""
    return (files(__name__) / name).read_text()

"""The address of a server with the token that it asks for, which no error shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit


def with_token(base_url: str, token: str | None) -> str:
    """The URL with the token in it: OpenEnv's clients before 0.10 can send no header of their own."""
    if token is None:
        return base_url
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(netloc=f"openenv:{token}@{parts.netloc.rpartition('@')[2]}"))


@contextmanager
def without_secrets(base_url: str) -> Iterator[None]:
    """Take a URL's token out of the `ConnectionError` that OpenEnv's client raises."""
    secret = urlsplit(base_url).netloc.rpartition("@")[0]
    try:
        yield
    except ConnectionError as error:
        if not secret:
            raise
        raise ConnectionError(str(error).replace(secret, "***")) from None

"""The address of a server with the token that it asks for."""

from urllib.parse import urlsplit, urlunsplit


def with_token(base_url: str, token: str | None) -> str:
    """The URL with the token in it: OpenEnv's clients before 0.10 can send no header of their own."""
    if token is None:
        return base_url
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(netloc=f"openenv:{token}@{parts.netloc.rpartition('@')[2]}"))

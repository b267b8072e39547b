"""Whether what a rollout asks for can be reached at all, found out before it starts.

Inside a rollout OpenCode tries a closed port again for minutes, and so does the Hub's library for every file of a
tokenizer. Invariant: what only fails to answer in time, or is behind a proxy, is left to them.
"""

import asyncio
import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from opencode_openenv.model_calls import Endpoint
from opencode_openenv.spec import RolloutSpec

_PAUSES = (0.0, 0.5, 1.0)
"""Seconds before each attempt: an engine that is being replaced may come back."""
_SECONDS = 5.0
_HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


class UnreachableError(Exception):
    """Nobody listens where a rollout must ask; the message says what, and never the server's own address."""


async def require_reachable(spec: RolloutSpec, endpoint: Endpoint) -> None:
    """Return if the model's endpoint and the tokenizer can be reached, as far as that can be known.

    Raises:
        UnreachableError: one of them cannot.
    """
    if why := await _unreachable(endpoint.base_url):
        named = f"base_url {endpoint.base_url}" if spec.base_url else f'the server\'s own endpoint "{spec.endpoint}"'
        raise UnreachableError(f"{named} cannot be reached: {why}")
    tokenizer = spec.tokenizer or endpoint.model
    if not spec.token_ids or not _HUB_NAME.fullmatch(tokenizer) or Path(tokenizer).exists() or _is_cached(tokenizer):
        return
    if why := await _unreachable(os.environ.get("HF_ENDPOINT") or "https://huggingface.co"):
        raise UnreachableError(
            f"tokenizer {tokenizer!r} is not on the server, and the Hub cannot be reached: {why}; give a directory of "
            "the server, or fill its cache first"
        )


def _is_cached(tokenizer: str) -> bool:
    """Whether the Hub's library has it on this machine, or is told to ask nobody."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return True
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    # renderers loads gated Llama tokenizers from a mirror of this owner.
    names = (tokenizer, f"unsloth/{tokenizer.rpartition('/')[2]}")
    kept = (cache / f"models--{name.replace('/', '--')}" / "snapshots" for name in names)
    return any(any(snapshots.glob("*/tokenizer*")) for snapshots in kept)


async def _unreachable(url: str) -> str:
    """Why nobody can be connected to there; empty if somebody can, or a proxy would do it."""
    parts = urlsplit(url)
    proxies = getproxies()
    if (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or ""):
        return ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    why = ""
    for pause in _PAUSES:
        await asyncio.sleep(pause)
        try:
            async with asyncio.timeout(_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except TimeoutError:
            return f"no connection within {_SECONDS:g} s"
        except (OSError, UnicodeError) as error:
            why = _told(error)
        else:
            writer.close()
            return ""
    return why


def _told(error: OSError | UnicodeError) -> str:
    """The reason, without an address."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its name is not known"
    return os.strerror(error.errno).lower() if error.errno else "nobody listens there"

"""Keys of callers, lent to verifiers' clients for as long as their rollouts last.

verifiers reads a key from the environment variable that an endpoint's configuration names, and records the
configuration on the trace: so a key gets a variable of its own. Invariant: equal keys share a variable, whose name
says nothing of the key, and no variable outlives its last rollout. Programs in a sandbox see none of this process's
variables.
"""

import hashlib
import hmac
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class LentKeys:
    """The keys of one engine."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._uses: Counter[str] = Counter()

    @contextmanager
    def lend(self, key: str) -> Iterator[str]:
        """The name of the variable that holds `key` until the end of the context."""
        digest = hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest()[:32]
        name = f"OPENCODE_OPENENV_{digest.upper()}_KEY"
        os.environ[name] = key
        self._uses[name] += 1
        try:
            yield name
        finally:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name], os.environ[name]

"""What the scripted model remembers of a request, for tests that ask what really arrived."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from opencode_env.scripted_model.reply import Reply


class RequestOutcome(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    """The answer, an error status included, was sent as the script has it."""
    REFUSED = "refused"
    """It was not a valid chat request (400), or longer than the context window."""
    CUT = "cut"
    """A fault closed the connection."""
    CLIENT_LEFT = "client_left"
    """The client closed the connection, or the server stopped, before the answer was out."""
    CRASHED = "crashed"
    """The policy raised; answered with 500."""


@dataclass
class RecordedRequest:
    """One request. The fields after `received` are filled in while it is answered."""

    body: dict[str, Any]
    """The parsed JSON, whole; empty when it was not a JSON object."""
    headers: Mapping[str, str]
    """Lower-case names."""
    received: float = field(default_factory=time.time)
    """Unix seconds."""
    reply: Reply | None = None
    """What the policy answered."""
    outcome: RequestOutcome | None = None
    """None while it is in flight."""
    finished: float | None = None
    """Unix seconds; None while it is in flight."""

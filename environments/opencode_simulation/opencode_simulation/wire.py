"""The lines between a world's server and the environment: JSON, one a line, over a Unix socket of the host.

Invariant: what an episode's steps gave reaches the environment before the agent sees it, and stays there when the
server dies. The socket lies in a private directory of the host, which no sandbox shows.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue, TypeAdapter

from opencode_simulation.episode import LEDGER_BYTES, EpisodeSpec
from opencode_simulation.ledger import LedgerEntry

LINE_LIMIT = 2 * LEDGER_BYTES
"""Bytes of the longest line: a step with its observation, which `LEDGER_BYTES` bounds."""


class Hello(BaseModel):
    """The server's first line: who it is."""

    kind: Literal["hello"] = "hello"
    token: str
    group: str | None = None
    """Of a shared server: the tasks whose worlds it serves."""
    rollout: str | None = None
    """Of a server for one rollout."""
    port: int | None = None
    """Of the same: where it listens."""
    log: str | None = None
    """The file to which it prints."""


class OfRollout(BaseModel):
    """What is said of one rollout's world."""

    rollout: str


class Opened(OfRollout):
    kind: Literal["opened"] = "opened"
    observation: JsonValue


class Stepped(OfRollout):
    kind: Literal["stepped"] = "stepped"
    entry: LedgerEntry


class Failed(OfRollout):
    kind: Literal["failed"] = "failed"
    error: str


class Closed(OfRollout):
    """A world was closed, and nothing more will come of it."""

    kind: Literal["closed"] = "closed"
    refused: int


class Open(OfRollout):
    """Order to the server: make a world and reset it."""

    kind: Literal["open"] = "open"
    spec: EpisodeSpec


class Acknowledged(OfRollout):
    """The environment has read that a world was opened, has come to its end or has failed."""

    kind: Literal["acknowledged"] = "acknowledged"


class End(OfRollout):
    """Order to the server: close a world."""

    kind: Literal["end"] = "end"
    finish: bool
    """Whether the agent came to its end, so that the world may judge its final state first."""


FromServer = Annotated[Hello | Opened | Stepped | Failed | Closed, Field(discriminator="kind")]
ToServer = Annotated[Open | Acknowledged | End, Field(discriminator="kind")]
FROM_SERVER: TypeAdapter[FromServer] = TypeAdapter(FromServer)
TO_SERVER: TypeAdapter[ToServer] = TypeAdapter(ToServer)


def line(message: BaseModel) -> bytes:
    return message.model_dump_json().encode() + b"\n"

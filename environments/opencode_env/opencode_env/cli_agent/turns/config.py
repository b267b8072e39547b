"""Options of kept turns (`--env.turns.*`)."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, Field, field_validator
from pydantic_config import BaseConfig


class TurnsConfig(BaseConfig):
    """Whether and how often turns are kept."""

    keep: Path | None = None
    """Folder in which turns are kept, made with mode 0700; None keeps none. A rollout that a folder's turn does not
    say has ended, and that was begun before this process served, goes on from its last turn there."""
    every: Annotated[str, BeforeValidator(str)] = "1"
    """Turns from one kept turn of a rollout to the next (`5`), or seconds (`30s`)."""
    max_disk: Annotated[ByteSize, Field(ge=1 << 20)] | None = ByteSize(64 << 30)
    """Bytes of all files that this process keeps, each counted as 16 KiB at least; beyond it the oldest turns are
    removed, but for the last one of each running rollout. A turn whose files alone have more is kept without them.
    None: no limit."""

    @field_validator("every")
    @classmethod
    def _is_turns_or_seconds(cls, every: str) -> str:
        if re.fullmatch(r"[1-9][0-9]{0,8}s?", every) is None:
            meant = 'is not a number of turns such as "5", and none of seconds such as "30s"'
            raise ValueError(f"every: {every!r} {meant}")
        return every

    def due(self, turns: int, seconds: float) -> bool:
        """Whether a turn is to be kept so many turns and seconds after the last one."""
        number = int(self.every.removesuffix("s"))
        return seconds >= number if self.every.endswith("s") else turns >= number

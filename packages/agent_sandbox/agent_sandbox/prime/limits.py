"""What one process may ask of Prime at once."""

import math
from collections.abc import Sequence

from pydantic import Field, FiniteFloat
from pydantic_config import BaseConfig


class PrimeLimits(BaseConfig):
    """Bounds of one process (each worker of an environment server is one); how fast a whole run creates sandboxes is
    `--env.<seat>.runtime.creates_per_min`."""

    max_sandboxes: int | None = Field(None, ge=1)
    """Sandboxes of rollouts at once; further rollouts wait for a place, which no deadline counts. None is as many as
    rollouts are played at once. Second sandboxes that scoring asks for come on top, so that none waits for another."""
    max_connections: int = Field(1000, ge=1)
    """Connections to the platform, and as many to its gateway's files. Each running command has one of its own on top.
    The first environment of a process decides."""
    creation_patience: FiniteFloat = Field(600.0, ge=0)
    """Seconds for which the creation of a sandbox is tried again while the platform answers that there are too many
    requests or sandboxes (429), within the time for setup."""


_UNLIMITED_STAGE_S = 3600.0
_SPARE_S = 900.0
"""For its start, for cleanup hooks and for its deletion."""
_NO_LIMIT = -1


def lifetime_minutes(stages: Sequence[float | None]) -> int:
    """Whole minutes, or -1, Prime's word for no limit, when a stage may take for ever.

    Args:
        stages: seconds that each stage of a rollout may take. None is a stage without a limit: an hour is added for
            it. `inf` is one that was given no limit on purpose.
    """
    seconds = _SPARE_S + sum(_UNLIMITED_STAGE_S if stage is None else stage for stage in stages)
    return math.ceil(seconds / 60) if math.isfinite(seconds) else _NO_LIMIT

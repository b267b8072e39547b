"""How long a sandbox may live: as long as its rollout's limits together, so that one left behind ends itself."""

import math
from collections.abc import Sequence

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

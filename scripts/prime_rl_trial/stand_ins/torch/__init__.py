"""What prime-rl's orchestrator takes of torch to average the rewards of a group, on numpy; used where torch is missing.

Torch is gigabytes, and the orchestrator needs no more of it than this to sample, to score and to pack.
"""

import numpy
from numpy.typing import NDArray

float32 = numpy.float32


def tensor(values: object, dtype: type[numpy.float32]) -> NDArray[numpy.float32]:
    """An array of numbers: means, differences and `tolist` are numpy's."""
    return numpy.asarray(values, dtype=dtype)

"""The name under which worlds are imported where they were part of this distribution: the package opencode_simulation.

`pip install opencode-env[simulation]` brings it.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opencode_simulation import *  # noqa: F403
else:
    sys.modules[__name__] = import_module("opencode_simulation")

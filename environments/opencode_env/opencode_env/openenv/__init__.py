"""opencode_openenv under the name that it had as part of this distribution; `opencode-env[openenv]` brings it."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opencode_openenv import *  # noqa: F403
else:
    sys.modules[__name__] = import_module("opencode_openenv")

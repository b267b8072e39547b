"""The name under which the OpenEnv server and client are imported where they were part of this distribution: the
package opencode_openenv. `pip install opencode-env[openenv]` brings it.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opencode_openenv import *  # noqa: F403
else:
    sys.modules[__name__] = import_module("opencode_openenv")

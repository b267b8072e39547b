"""OpenCode as a verifiers environment: harness, environment and taskset under one plugin id, `opencode-env`.

The classes are imported on first use: the scripted model and the commands of this package then start without
verifiers, which takes seconds to import.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from opencode_env.own_packages import refuse_foreign_packages

refuse_foreign_packages()

from rollout_sandbox.lazy_names import lazy_names  # noqa: E402

if TYPE_CHECKING:
    from opencode_env.agents.opencode import OpenCodeHarness
    from opencode_env.agents.opencode.env import OpenCodeEnv
    from opencode_env.errors import AgentError as AgentError
    from opencode_env.taskset import OpenCodeTaskset

__all__ = ["OpenCodeEnv", "OpenCodeHarness", "OpenCodeTaskset"]

_MODULES = {
    "AgentError": "opencode_env.errors",
    "PodmanBackend": "rollout_sandbox.podman",
    "OpenCodeEnv": "opencode_env.agents.opencode.env",
    "OpenCodeHarness": "opencode_env.agents.opencode",
    "OpenCodeTaskset": "opencode_env.taskset",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

if Path(sys.argv[0]).name == "vf-eval":
    sys.stderr.write("loading the environment …\n")

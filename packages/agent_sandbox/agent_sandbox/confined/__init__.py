"""The confined local sandbox: a verifiers runtime in which one rollout runs under bubblewrap."""

from agent_sandbox.confined.arguments import require_private_workdir as require_private_workdir
from agent_sandbox.confined.bubblewrap import require_bubblewrap as require_bubblewrap
from agent_sandbox.confined.config import Bind as Bind
from agent_sandbox.confined.config import LocalSandboxConfig as LocalSandboxConfig
from agent_sandbox.confined.runtime import BubblewrapBackend as BubblewrapBackend
from agent_sandbox.confined.runtime import ConfinedRuntime as ConfinedRuntime
from agent_sandbox.confined.runtime import provision_confined as provision_confined

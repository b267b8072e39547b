"""The confined local sandbox: a verifiers runtime in which one rollout runs under bubblewrap."""

from rollout_sandbox.confined.bubblewrap import require_bubblewrap as require_bubblewrap
from rollout_sandbox.confined.bubblewrap import require_private_workdir as require_private_workdir
from rollout_sandbox.confined.config import Bind as Bind
from rollout_sandbox.confined.config import LocalSandboxConfig as LocalSandboxConfig
from rollout_sandbox.confined.runtime import BubblewrapBackend as BubblewrapBackend
from rollout_sandbox.confined.runtime import ConfinedRuntime as ConfinedRuntime
from rollout_sandbox.confined.runtime import provision_confined as provision_confined

"""What a task says, under the name that its version of verifiers has for it.

It goes when 0.4.0 is no longer supported, and its callers say what the first branch says.
"""

from typing import Any

from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import TaskData

from agent_sandbox.verifiers_versions.installed import AFTER_0_4_0


def asked_network(data: TaskData) -> NetworkPolicyConfig:
    """What a task's box may reach; 0.4.1 (dev48) gathers `network_allow` and `network_block` in `network`."""
    if AFTER_0_4_0:
        return data.network
    else:
        return NetworkPolicyConfig(allow=data.network_allow, block=data.network_block)


def network_fields(allow: list[str]) -> dict[str, Any]:
    """The fields of a task's data that bound what its box may reach to `allow`, under their present name."""
    if AFTER_0_4_0:
        return {"network": NetworkPolicyConfig(allow=allow)}
    else:
        return {"network_allow": allow}


async def lift_network(runtime: Runtime) -> None:
    """Give a box the whole network again, which its agent may not have had; 0.4.1 (dev18) asks the backend for it."""
    owner: Any = runtime if hasattr(runtime, "prepare_execution") else getattr(runtime, "backend")  # noqa: B009
    await owner.prepare_execution(None)

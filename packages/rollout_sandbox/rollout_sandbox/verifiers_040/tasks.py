"""What a task says of its network. It goes with 0.4.0, and its callers say what the first branches say."""

from typing import Any

from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.task import TaskData

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0


def asked_network(data: TaskData) -> NetworkPolicyConfig:
    """What a task's sandbox may reach."""
    if AFTER_0_4_0:
        return data.network
    else:
        return NetworkPolicyConfig(allow=data.network_allow, block=data.network_block)


def network_fields(allow: list[str]) -> dict[str, Any]:
    """The fields of a task's data that bound what its sandbox may reach to `allow`."""
    if AFTER_0_4_0:
        return {"network": NetworkPolicyConfig(allow=allow)}
    else:
        return {"network_allow": allow}

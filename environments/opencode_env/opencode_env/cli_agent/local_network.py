"""What the local sandbox promises verifiers about the network, when a task asks for less than all of it.

The confined sandbox lets its programs reach the rollout's own endpoints and nothing else, which verifiers calls
framework-only, and has no way to a host that a task names. verifiers believes what a lent sandbox's configuration says.
"""

from agent_sandbox.confined import LocalSandboxConfig
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import TaskError
from verifiers.v1.runtimes import SubprocessConfig


class FrameworkOnlyConfig(SubprocessConfig, NetworkPolicyConfig):
    """The configuration of a confined sandbox whose task may reach nothing but its own endpoints."""

    allow: list[str] = []
    block: list[str] = ["*"]


def local_runtime_config(asked: NetworkPolicyConfig, options: LocalSandboxConfig) -> SubprocessConfig:
    """What a local sandbox tells verifiers of itself, for a task that asks for this network.

    Raises:
        TaskError: the sandbox would give the task more, or less, than it asks for.
    """
    if not asked.network_restricted:
        return SubprocessConfig()
    if not options.confine or options.network == "host":
        raise TaskError(
            "the task bounds what its sandbox may reach, and this one reaches all that this machine does: leave out "
            "--env.sandbox.network host and --env.sandbox.confine false"
        )
    if asked.allow:
        hosts = ", ".join(f"no {host}" for host in asked.block) or ", ".join(asked.allow)
        raise TaskError(
            f"the task asks for a network with {hosts}, and the local sandbox reaches the rollout's own endpoints and "
            "nothing else: use --env.agent.runtime.type docker or prime"
        )
    return FrameworkOnlyConfig()

"""verifiers 0.4.0 and 0.4.1 (from its 86th development release on): all that differs between them, and only here.

Each difference says which version brought it. All of it goes when 0.4.0 is no longer supported.
"""

from agent_sandbox.verifiers_versions.calls import (
    is_this_machine,
    run_program,
    start_process,
    starts_processes,
    supports_users,
)
from agent_sandbox.verifiers_versions.custom import NamedBackend, NamedConfig
from agent_sandbox.verifiers_versions.dialects import error_body
from agent_sandbox.verifiers_versions.harnesses import OPENCODE_HARNESSES
from agent_sandbox.verifiers_versions.installed import AFTER_0_4_0
from agent_sandbox.verifiers_versions.own_runtime import OwnRuntime, OwnSubprocessRuntime, provisioned
from agent_sandbox.verifiers_versions.podman import ContainerBackend, PodmanConfig, own_container, podman_info
from agent_sandbox.verifiers_versions.prime import (
    NamedPrimeConfig,
    PrimeBase,
    bound_gateway,
    command_of,
    forget_access,
    provisioned_prime,
    unnamed_prime,
)
from agent_sandbox.verifiers_versions.runtimes import GONE_RUNTIMES
from agent_sandbox.verifiers_versions.tasks import asked_network, lift_network, network_fields
from agent_sandbox.verifiers_versions.traces import drop_with, index_nodes

__all__ = [
    "AFTER_0_4_0",
    "GONE_RUNTIMES",
    "OPENCODE_HARNESSES",
    "ContainerBackend",
    "NamedBackend",
    "NamedConfig",
    "NamedPrimeConfig",
    "OwnRuntime",
    "OwnSubprocessRuntime",
    "PodmanConfig",
    "PrimeBase",
    "asked_network",
    "bound_gateway",
    "command_of",
    "drop_with",
    "error_body",
    "forget_access",
    "index_nodes",
    "is_this_machine",
    "lift_network",
    "network_fields",
    "own_container",
    "podman_info",
    "provisioned",
    "provisioned_prime",
    "run_program",
    "start_process",
    "starts_processes",
    "supports_users",
    "unnamed_prime",
]

"""All that verifiers 0.4.0 needs: the interface of 0.4.1 (from its 86th development release on) on top of it.

Everything else is written for 0.4.1. When 0.4.0 is dropped (docs/architecture.md says when), this folder goes: what
it names like verifiers is imported from there, and of a function of ours the caller says what its first branch says.
"""

from agent_sandbox.verifiers_040.calls import (
    backend_of,
    is_this_machine,
    lift_network,
    run_program,
    start_process,
    starts_processes,
    supports_users,
)
from agent_sandbox.verifiers_040.containers import engine_program, exec_command
from agent_sandbox.verifiers_040.custom import CustomRuntimeConfig, CustomRuntimeInfo
from agent_sandbox.verifiers_040.dialects import error_body
from agent_sandbox.verifiers_040.harnesses import OPENCODE_HARNESSES
from agent_sandbox.verifiers_040.installed import AFTER_0_4_0
from agent_sandbox.verifiers_040.own_backends import PrimeBackend, SubprocessBackend
from agent_sandbox.verifiers_040.runtime import Runtime, RuntimeBackend
from agent_sandbox.verifiers_040.runtimes import GONE_RUNTIMES
from agent_sandbox.verifiers_040.tasks import asked_network, network_fields
from agent_sandbox.verifiers_040.traces import drop_with, index_nodes

__all__ = [
    "AFTER_0_4_0",
    "GONE_RUNTIMES",
    "OPENCODE_HARNESSES",
    "CustomRuntimeConfig",
    "CustomRuntimeInfo",
    "PrimeBackend",
    "Runtime",
    "RuntimeBackend",
    "SubprocessBackend",
    "asked_network",
    "backend_of",
    "drop_with",
    "engine_program",
    "error_body",
    "exec_command",
    "index_nodes",
    "is_this_machine",
    "lift_network",
    "network_fields",
    "run_program",
    "start_process",
    "starts_processes",
    "supports_users",
]

"""All that verifiers 0.4.0 needs: the interface of 0.4.1 (from its 86th development release on) on top of it.

Everything else is written for 0.4.1. When 0.4.0 is dropped (docs/architecture.md says when), this folder goes: what
it names like verifiers is imported from there, and of a function of ours the caller says what its first branch says.
"""

from rollout_sandbox.verifiers_040.calls import backend_of as backend_of
from rollout_sandbox.verifiers_040.calls import is_this_machine as is_this_machine
from rollout_sandbox.verifiers_040.calls import lift_network as lift_network
from rollout_sandbox.verifiers_040.calls import run_program as run_program
from rollout_sandbox.verifiers_040.calls import start_process as start_process
from rollout_sandbox.verifiers_040.calls import starts_processes as starts_processes
from rollout_sandbox.verifiers_040.calls import supports_users as supports_users
from rollout_sandbox.verifiers_040.containers import engine_program as engine_program
from rollout_sandbox.verifiers_040.containers import exec_command as exec_command
from rollout_sandbox.verifiers_040.custom import CustomRuntimeConfig as CustomRuntimeConfig
from rollout_sandbox.verifiers_040.custom import CustomRuntimeInfo as CustomRuntimeInfo
from rollout_sandbox.verifiers_040.dialects import error_body as error_body
from rollout_sandbox.verifiers_040.harnesses import OPENCODE_HARNESSES as OPENCODE_HARNESSES
from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0 as AFTER_0_4_0
from rollout_sandbox.verifiers_040.own_backends import PrimeBackend as PrimeBackend
from rollout_sandbox.verifiers_040.own_backends import SubprocessBackend as SubprocessBackend
from rollout_sandbox.verifiers_040.runtime import Runtime as Runtime
from rollout_sandbox.verifiers_040.runtime import RuntimeBackend as RuntimeBackend
from rollout_sandbox.verifiers_040.runtimes import GONE_RUNTIMES as GONE_RUNTIMES
from rollout_sandbox.verifiers_040.tasks import asked_network as asked_network
from rollout_sandbox.verifiers_040.tasks import network_fields as network_fields
from rollout_sandbox.verifiers_040.traces import drop_with as drop_with
from rollout_sandbox.verifiers_040.traces import index_nodes as index_nodes

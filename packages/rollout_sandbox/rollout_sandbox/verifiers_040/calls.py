"""What is asked of any runtime, verifiers' own among them, under the name that its version has for it.

Each function goes with 0.4.0, and its callers say what the first branch says.
"""

from typing import TypeAlias

from verifiers.v1.runtimes import ProgramResult, Runtime, RuntimeProcess

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0
from rollout_sandbox.verifiers_040.own_backends import SubprocessBackend
from rollout_sandbox.verifiers_040.runtime import RuntimeBackend

if AFTER_0_4_0:
    AnyBackend: TypeAlias = RuntimeBackend
    _THIS_MACHINE: tuple[type, ...] = (SubprocessBackend,)
else:
    from verifiers.v1.runtimes import SubprocessRuntime

    AnyBackend: TypeAlias = RuntimeBackend | Runtime
    _THIS_MACHINE: tuple[type, ...] = (SubprocessBackend, SubprocessRuntime)


def backend_of(runtime: Runtime) -> AnyBackend:
    """What can do with a sandbox what its views cannot: end it, bound its network."""
    if AFTER_0_4_0:
        return runtime.backend
    else:
        backend: AnyBackend = getattr(runtime, "backend", runtime)
        return backend


async def start_process(runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
    """Start a process whose three streams stay open."""
    if AFTER_0_4_0:
        return await runtime.exec(argv, env)
    else:
        return await runtime.open_process(argv, env)


def starts_processes(runtime: Runtime) -> bool:
    """Whether `start_process` works."""
    if AFTER_0_4_0:
        return True
    else:
        return runtime.supports_live_processes


async def run_program(runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
    """Run the agent's program to its end, which 0.4.0 tells from shorter commands."""
    if AFTER_0_4_0:
        return await runtime.run(argv, env)
    else:
        return await runtime.run_program(argv, env)


def supports_users(runtime: Runtime) -> bool:
    """Whether commands can run as another user."""
    if AFTER_0_4_0:
        return runtime.backend.SUPPORTS_USER_SWITCHING
    else:
        return runtime.supports_user


def is_this_machine(runtime: Runtime) -> bool:
    """Whether programs run on this machine without confinement."""
    return isinstance(backend_of(runtime), _THIS_MACHINE)


async def lift_network(runtime: Runtime) -> None:
    """Give a sandbox the whole network again, which its agent may not have had."""
    await backend_of(runtime).prepare_execution(None)

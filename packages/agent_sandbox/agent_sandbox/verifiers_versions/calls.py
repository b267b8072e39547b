"""What is asked of any runtime, verifiers' own among them, under the name that its version has for it.

Each function goes when 0.4.0 is no longer supported, and its callers say what the first branch says.
"""

from verifiers.v1.runtimes import ProgramResult, Runtime, RuntimeProcess

from agent_sandbox.verifiers_versions.installed import AFTER_0_4_0
from agent_sandbox.verifiers_versions.own_runtime import OwnRuntime

if AFTER_0_4_0:
    from verifiers.v1.runtimes import SubprocessBackend
else:
    from verifiers.v1.runtimes import SubprocessRuntime


async def start_process(runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
    """Start a process whose three streams stay open; 0.4.1 (dev52) renamed `open_process` to `exec`.

    Raises:
        SandboxError: the sandbox is gone.
    """
    if AFTER_0_4_0:
        return await runtime.exec(argv, env)
    else:
        return await runtime.open_process(argv, env)


def starts_processes(runtime: Runtime) -> bool:
    """Whether `start_process` works; since 0.4.1 (dev52) every runtime can."""
    if AFTER_0_4_0:
        return True
    else:
        return runtime.supports_live_processes


async def run_program(runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
    """Run the agent's program to its end; 0.4.1 (dev52) left `run` for it, and only ours still tell it apart.

    Raises:
        SandboxError: the sandbox is gone.
    """
    if AFTER_0_4_0:
        return await (runtime.run_program if isinstance(runtime, OwnRuntime) else runtime.run)(argv, env)
    else:
        return await runtime.run_program(argv, env)


def supports_users(runtime: Runtime) -> bool:
    """Whether commands can run as another user; 0.4.1 (dev18) keeps that on the backend."""
    if AFTER_0_4_0:
        return runtime.backend.SUPPORTS_USER_SWITCHING
    else:
        return runtime.supports_user


def is_this_machine(runtime: Runtime) -> bool:
    """Whether programs run on this machine without confinement; 0.4.1 (dev18) has a backend for that."""
    if AFTER_0_4_0:
        return isinstance(runtime.backend, SubprocessBackend)
    else:
        return isinstance(runtime, SubprocessRuntime)

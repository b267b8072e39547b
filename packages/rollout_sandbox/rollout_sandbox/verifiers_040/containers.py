"""verifiers' own containers on this machine: the engine's program, and the command line that runs a program in one."""

from typing import Any

from verifiers.v1.runtimes import Runtime

from rollout_sandbox.verifiers_040.calls import backend_of
from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0

if AFTER_0_4_0:
    from verifiers.v1.runtimes import DockerBackend
else:
    from verifiers.v1.runtimes.container import ContainerRuntime


def engine_program(runtime: Runtime) -> str | None:
    """The program on this machine that knows the container, verifiers' own or one of ours; None for other sandboxes."""
    box: Any = backend_of(runtime)
    if AFTER_0_4_0:
        if isinstance(box, DockerBackend):
            return "docker" if box._host_backend is None else None
    elif getattr(box, "_host", None) is not None:
        return None
    program: str | None = getattr(box, "engine", None)
    return program


def exec_command(runtime: Runtime, env: dict[str, str]) -> list[str] | None:
    """What runs the program whose words follow, in a container of verifiers' own on this machine; None elsewhere."""
    seen = runtime.process_env(env)
    if AFTER_0_4_0:
        box = runtime.backend
        if not isinstance(box, DockerBackend) or box._host_backend is not None:
            return None
        return list(box._exec_argv(seen, user=runtime.user))
    else:
        return list(runtime._exec(seen)) if isinstance(runtime, ContainerRuntime) and runtime._host is None else None

"""What tests ask of a sandbox of either version of verifiers."""

from typing import Any, Protocol

from agent_sandbox.verifiers_versions import AFTER_0_4_0, OwnRuntime
from verifiers.v1.runtimes import Runtime


def reaching(allow: list[str]) -> dict[str, Any]:
    """The fields of a task that may reach these hosts; verifiers 0.4.1 (dev48) gathers them in one."""
    return {"network": {"allow": allow}} if AFTER_0_4_0 else {"network_allow": allow}


class Ends(Protocol):
    """What can end a sandbox."""

    async def stop(self) -> None: ...

    def cleanup(self) -> None: ...


def sandbox_of(runtime: Runtime) -> Ends:
    """What ends the sandbox: since verifiers 0.4.1 (dev18) that is not a matter of a `Runtime`."""
    if AFTER_0_4_0:
        return runtime if isinstance(runtime, OwnRuntime) else runtime.backend
    else:
        return runtime

"""What tests ask of a sandbox of either version of verifiers."""

from typing import Protocol

from opencode_rubrics.verifiers_versions import AFTER_0_4_0, OwnRuntime
from verifiers.v1.runtimes import Runtime


class Ends(Protocol):
    """What can end a sandbox."""

    async def stop(self) -> None: ...

    def cleanup(self) -> None: ...


def sandbox_of(runtime: Runtime) -> Ends:
    """What ends the sandbox: since verifiers 0.4.1 (dev52) that is no matter of a `Runtime`."""
    if AFTER_0_4_0:
        return runtime if isinstance(runtime, OwnRuntime) else runtime.backend
    else:
        return runtime

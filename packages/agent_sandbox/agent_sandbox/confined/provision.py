"""Provisioning a local sandbox as verifiers provisions a runtime."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from agent_sandbox.confined.config import Bind, LocalSandboxConfig
from agent_sandbox.confined.runtime import ConfinedRuntime
from agent_sandbox.toolbox.workdir import DEFAULT_WORKDIR
from agent_sandbox.verifiers_versions import provisioned


@contextlib.asynccontextmanager
async def provision_confined(
    options: LocalSandboxConfig,
    binds: Sequence[Bind] = (),
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str = DEFAULT_WORKDIR,
) -> AsyncIterator[ConfinedRuntime]:
    """Start a local sandbox and end it on exit, whatever happens.

    Args:
        options: what the user chose.
        binds: host files and directories that are shown inside, read-only.
        name: for messages and the host directory; random by default.
        env: environment variables of every command.
        workdir: where commands start; private and writable.

    Raises:
        SandboxError: the sandbox could not be started.
    """
    async with provisioned(ConfinedRuntime(options, binds, name, workdir), env) as runtime:
        yield runtime

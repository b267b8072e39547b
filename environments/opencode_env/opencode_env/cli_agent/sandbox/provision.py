"""Provisioning a local sandbox as verifiers provisions a runtime."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from opencode_rubrics.sandbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.runtimes.base import register

from opencode_env.cli_agent.sandbox.config import Bind, LocalSandboxConfig
from opencode_env.cli_agent.sandbox.runtime import ConfinedRuntime


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
    runtime = ConfinedRuntime(options, binds, name, workdir)
    register(runtime)
    runtime.env = dict(env or {})
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()

"""Provisioning a local sandbox as verifiers provisions a runtime."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from verifiers.v1.runtimes import Runtime, SubprocessConfig, SubprocessRuntime
from verifiers.v1.runtimes.base import register

from .config import Bind, LocalSandboxConfig
from .runtime import ConfinedRuntime


@contextlib.asynccontextmanager
async def provision_confined(
    options: LocalSandboxConfig,
    binds: Sequence[Bind] = (),
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str = "/app",
) -> AsyncIterator[Runtime]:
    """Start a local sandbox and end it on exit, whatever happens.

    Yields a `ConfinedRuntime`, or, with `confine = false`, verifiers' plain `SubprocessRuntime` (then `binds` and
    `workdir` have no effect).

    Args:
        options: what the user chose.
        binds: host files and directories that are shown inside, read-only.
        name: for messages and the host directory; random by default.
        env: environment variables of every command.
        workdir: where commands start.

    Raises:
        SandboxError: the sandbox could not be started.
    """
    runtime: Runtime
    if options.confine:
        runtime = ConfinedRuntime(options, binds, name, workdir)
    else:
        runtime = SubprocessRuntime(SubprocessConfig(), name)
    register(runtime)
    runtime.env = dict(env or {})
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()

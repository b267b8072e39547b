"""verifiers' own Prime runtime, to be derived from.

0.4.0: `PrimeRuntime` is the sandbox and a view of it; 0.4.1 (dev18) has a `PrimeBackend`, whose methods are told the
view as their first argument. When 0.4.0 is no longer supported, its branches go.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from verifiers.v1.runtimes import PrimeConfig, Runtime
from verifiers.v1.runtimes.base import register

from agent_sandbox.verifiers_versions.installed import AFTER_0_4_0

if AFTER_0_4_0:
    from verifiers.v1.runtimes import PrimeBackend

    PrimeBase = PrimeBackend
else:
    from verifiers.v1.runtimes import PrimeRuntime

    PrimeBase = PrimeRuntime


def command_of(box: PrimeBase, arguments: tuple[Any, ...]) -> tuple[list[str], dict[str, str], str | None]:
    """The argv, variables and user of a command, from what `run` was given."""
    *view, argv, env = arguments
    seen: Any = view[0] if view else box
    return argv, seen.process_env(env), seen.user


def bound_gateway(client: Any, most: int, kept: int) -> None:
    """Bound the connections of the SDK's client to its gateway, before it has made the first.

    The SDK (0.5.1) asks whoever makes the client, which is verifiers, and reads these when the gateway is first used.
    """
    client._max_connections, client._max_keepalive_connections = most, kept


async def forget_access(client: Any, sandbox_id: str) -> None:
    """Have the SDK's client forget the way into a sandbox that is deleted.

    By itself (0.5.1) it keeps that of every sandbox that ever was, and writes all of them to a file with each new one.
    """
    await client._auth_cache.invalidate(sandbox_id)


@contextlib.asynccontextmanager
async def provisioned_prime(box: PrimeBase, env: Mapping[str, str] | None = None) -> AsyncIterator[Runtime]:
    """Start a Prime sandbox and delete it on exit, whatever happens.

    Args:
        box: not started yet.
        env: variables of every process in it.

    Raises:
        SandboxError: it could not be started.
    """
    register(box)
    box.env = dict(env or {})
    try:
        await box.start()
        if AFTER_0_4_0:
            yield box.bind()
        else:
            yield box
    finally:
        await box.stop()


if AFTER_0_4_0:
    from verifiers.v1.configs.runtime import CustomRuntimeConfig

    class NamedPrimeConfig(PrimeConfig, CustomRuntimeConfig):
        """The options of a Prime sandbox, of a runtime that is named by its path."""

        type: Literal["custom"] = "custom"  # type: ignore[assignment]  # "prime" there

else:

    class NamedPrimeConfig(PrimeConfig):
        """verifiers 0.4.0 names no runtime by its path."""

        import_path: str


def unnamed_prime(config: NamedPrimeConfig) -> PrimeConfig:
    """The options that verifiers itself has for a Prime sandbox."""
    return PrimeConfig(**{name: getattr(config, name) for name in PrimeConfig.model_fields if name != "type"})

"""What differs between the supported versions of verifiers: the interface of 0.4.1 on top of 0.4.0.

Supported are 0.4.0 and everything from 0.4.1.dev86 to before 0.5; a development release between them has some of the
changes and not others, and is refused. All else is written for 0.4.1. When 0.4.0 is dropped (docs/releases.md), this
module goes but for `abilities_of` and for what is done to parts of other libraries that have no hook for it, which its
last functions name: what it names like verifiers is imported from there, and callers of a function say what its first
branch says.
"""

import asyncio
import uuid
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, cast

from packaging.version import Version

_FIRST_AFTER = Version("0.4.1.dev86")

_found: Final = Version(version("verifiers"))
if Version("0.4.0") < _found < _FIRST_AFTER:
    raise ImportError(
        f"verifiers {_found} is a development release between 0.4.0 and {_FIRST_AFTER}: install verifiers 0.4.0, or "
        f"{_FIRST_AFTER} or newer"
    )

AFTER_0_4_0: Final[bool] = _found >= _FIRST_AFTER
"""mypy is told the value (`always_true` or `always_false`), so that each branch is checked under its own version."""

from pydantic import ConfigDict
from pydantic_config import BaseConfig
from verifiers.v1 import graph
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.dialects import Dialect
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import BaseRuntimeInfo, PrimeConfig, ProgramResult, RuntimeProcess, SubprocessConfig
from verifiers.v1.runtimes import Runtime as VerifiersRuntime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.interface import SandboxAbilities

if AFTER_0_4_0:
    from verifiers.v1.configs.runtime import CustomRuntimeConfig as CustomRuntimeConfig
    from verifiers.v1.harnesses import OpenCodeHarness
    from verifiers.v1.runtimes import CustomRuntimeInfo as CustomRuntimeInfo
    from verifiers.v1.runtimes import DockerBackend
    from verifiers.v1.runtimes import PrimeBackend as PrimeBackend
    from verifiers.v1.runtimes import Runtime as Runtime
    from verifiers.v1.runtimes import RuntimeBackend as RuntimeBackend
    from verifiers.v1.runtimes import SubprocessBackend as SubprocessBackend

    AnyBackend: TypeAlias = RuntimeBackend
    _THIS_MACHINE: tuple[type, ...] = (SubprocessBackend,)
    OPENCODE_HARNESSES: tuple[type[Harness[Any]], ...] = (OpenCodeHarness,)
else:
    from verifiers.v1.runtimes import PrimeRuntime, SubprocessRuntime
    from verifiers.v1.runtimes.container import ContainerRuntime

    class RuntimeBackend:
        """One sandbox; what is done in it is told the view through which it was asked for."""

        is_local: bool = False
        SUPPORTS_TASK_IMAGES: ClassVar[bool] = False
        SUPPORTS_USER_SWITCHING: ClassVar[bool] = False
        SUPPORTS_PORT_EXPOSURE: ClassVar[bool] = False
        config: Any
        info: Any

        def __init__(self, name: str | None = None) -> None:
            self.name = name or f"vf-{uuid.uuid4().hex[:12]}"
            self.env: dict[str, str] = {}
            self.stopped = False

        def bind(self, *, env: Mapping[str, str] | None = None) -> "Runtime":
            return Runtime(self, env=self.env if env is None else env)

        async def start(self) -> None:
            raise NotImplementedError

        async def stop(self) -> None:
            self.stopped = True
            await run_shielded(self.teardown())

        async def teardown(self) -> None:
            await asyncio.to_thread(self.cleanup)

        def cleanup(self) -> None:
            """Remove it without an event loop; idempotent."""

        async def exec(self, runtime: "Runtime", argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            raise NotImplementedError

        async def run(self, runtime: "Runtime", argv: list[str], env: dict[str, str]) -> ProgramResult:
            raise NotImplementedError

        async def run_background(self, runtime: "Runtime", argv: list[str], env: dict[str, str], log: str) -> None:
            raise NotImplementedError

        async def read(self, runtime: "Runtime", path: str, max_bytes: int | None = None) -> bytes:
            raise NotImplementedError

        async def write(self, runtime: "Runtime", path: str, data: bytes) -> None:
            raise NotImplementedError

        def host_url(self, url: str) -> str:
            return url

        async def expose(self, port: int) -> str:
            return f"http://127.0.0.1:{port}"

        async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
            """Enforce the network policy for the agent; without routes, lift it."""

        @property
        def network_restricted(self) -> bool:
            return isinstance(self.config, NetworkPolicyConfig) and self.config.network_restricted

    class Runtime(VerifiersRuntime):
        """A view of a sandbox; further views of it share everything but `env`, `user` and `home`."""

        def __init__(
            self,
            backend: RuntimeBackend,
            env: Mapping[str, str] | None = None,
            user: str | None = None,
            home: str | None = None,
        ) -> None:
            self.backend = backend
            super().__init__(backend.name)
            self.is_local = backend.is_local
            self.env, self.user, self.home = dict(env or {}), user, home

        @property
        def config(self) -> Any:
            return self.backend.config

        @property
        def info(self) -> Any:  # type: ignore[override]  # a plain attribute there
            return self.backend.info

        @property
        def stopped(self) -> bool:
            """Whether teardown has begun."""
            return self.backend.stopped

        @stopped.setter
        def stopped(self, value: bool) -> None:
            """0.4.0 sets it as a runtime is made."""

        @property
        def supports_user(self) -> bool:  # type: ignore[override]  # one of the class there
            return self.backend.SUPPORTS_USER_SWITCHING

        @property
        def network_restricted(self) -> bool:
            return self.backend.network_restricted

        def with_env(self, env: Mapping[str, str]) -> Self:
            return cast(Self, super().with_env(dict(env)))

        def with_user(self, user: str | None, home: str | None = None) -> Self:
            return cast(Self, super().with_user(user, home))

        async def start(self) -> None:
            await self.backend.start()

        async def stop(self) -> None:
            await self.backend.stop()

        async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
            return await self.backend.run(self, argv, env)

        async def exec(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            return await self.backend.exec(self, argv, env)

        async def open_process(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            return await self.exec(argv, env)

        async def run_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
            await self.backend.run_background(self, argv, env, log)

        async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
            return await self.backend.read(self, path, max_bytes)

        async def write(self, path: str, data: bytes) -> None:
            await self.backend.write(self, path, data)

        def host_url(self, url: str) -> str:
            return self.backend.host_url(url)

        async def expose(self, port: int) -> str:
            return await self.backend.expose(port)

        async def prepare_execution(self, routes: list[str] | None) -> None:
            await self.backend.prepare_execution(routes)

    class _BackendOf040(RuntimeBackend):
        """A backend behind which a runtime of 0.4.0 stands."""

        def __init__(self, inner: SubprocessRuntime | PrimeRuntime) -> None:
            super().__init__(inner.name)
            self._inner = inner
            self.is_local, self.info, self.config = inner.is_local, inner.info, inner.config

        def _seen(self, runtime: VerifiersRuntime) -> VerifiersRuntime:
            return self._inner.with_env(dict(runtime.env)).with_user(runtime.user, runtime.home)

        async def start(self) -> None:
            self._inner.env = self.env
            await self._inner.start()

        async def teardown(self) -> None:
            await self._inner.teardown()

        def cleanup(self) -> None:
            self._inner.cleanup()

        async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            return await self._seen(runtime).open_process(argv, env)

        async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
            return await self._seen(runtime).run(argv, env)

        async def run_background(self, runtime: Runtime, argv: list[str], env: dict[str, str], log: str) -> None:
            await self._seen(runtime).run_background(argv, env, log)

        async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
            return await self._seen(runtime)._read(path, max_bytes)

        async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
            await self._seen(runtime).write(path, data)

        def host_url(self, url: str) -> str:
            return self._inner.host_url(url)

        async def expose(self, port: int) -> str:
            return await self._inner.expose(port)

        async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
            await self._inner.prepare_execution(routes)

    class SubprocessBackend(_BackendOf040):
        """Programs on this machine, without confinement."""

        def __init__(self, config: SubprocessConfig, name: str | None = None) -> None:
            super().__init__(SubprocessRuntime(config, name))

    class _PrimeRuntime(PrimeRuntime):
        """0.4.0's, whose client is kept by its backend, and whose commands are run by it."""

        def __init__(self, backend: "PrimeBackend", config: PrimeConfig, name: str | None) -> None:
            self.backend = backend
            super().__init__(config, name)

        @property
        def _client(self) -> Any:
            return self.backend._client

        @_client.setter
        def _client(self, client: Any) -> None:
            self.backend._client = client

        async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
            """Run it as the subclass of `PrimeBackend` does."""
            seen: Any = self
            return await self.backend.run(seen, argv, env)

    class PrimeBackend(_BackendOf040):
        """A Prime sandbox; a subclass says how commands are run in it."""

        SUPPORTS_TASK_IMAGES = True
        SUPPORTS_USER_SWITCHING = True
        _client: Any

        def __init__(self, config: PrimeConfig, name: str | None = None) -> None:
            super().__init__(_PrimeRuntime(self, config, name))

    class CustomRuntimeConfig(BaseConfig):
        """The options of such a runtime."""

        type: Literal["custom"] = "custom"
        import_path: str

    class CustomRuntimeInfo(BaseRuntimeInfo):
        """Holds what a trace says of it."""

        model_config = ConfigDict(extra="allow")
        type: Literal["custom"] = "custom"
        import_path: str

    AnyBackend: TypeAlias = RuntimeBackend | VerifiersRuntime
    _THIS_MACHINE: tuple[type, ...] = (SubprocessBackend, SubprocessRuntime)
    OPENCODE_HARNESSES: tuple[type[Harness[Any]], ...] = ()
    """verifiers' own harness for OpenCode, which 0.4.0 has not."""

_OTHERS = 'docker, prime, or a backend of your own: "custom" with its import_path'

GONE_RUNTIMES: Final[Mapping[str, str]] = (
    {
        "podman": '"custom" with import_path "rollout_sandbox.PodmanBackend"',
        "apptainer": _OTHERS,
        "modal": _OTHERS,
        "e2b": _OTHERS,
    }
    if AFTER_0_4_0
    else {}
)
"""What to name instead, by the type that verifiers 0.4.0 had."""


def backend_of(runtime: VerifiersRuntime) -> AnyBackend:
    """Return what can do with a sandbox what its views cannot: end it, bound its network."""
    if AFTER_0_4_0:
        return runtime.backend
    else:
        backend: AnyBackend = getattr(runtime, "backend", runtime)
        return backend


async def start_process(runtime: VerifiersRuntime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
    """Start a process whose three streams stay open."""
    if AFTER_0_4_0:
        return await runtime.exec(argv, env)
    else:
        return await runtime.open_process(argv, env)


def starts_processes(runtime: VerifiersRuntime) -> bool:
    if AFTER_0_4_0:
        return True
    else:
        return runtime.supports_live_processes


async def run_program(runtime: VerifiersRuntime, argv: list[str], env: dict[str, str]) -> ProgramResult:
    """Run the agent's program to its end, which 0.4.0 tells from shorter commands."""
    if AFTER_0_4_0:
        return await runtime.run(argv, env)
    else:
        return await runtime.run_program(argv, env)


def supports_users(runtime: VerifiersRuntime) -> bool:
    if AFTER_0_4_0:
        return runtime.backend.SUPPORTS_USER_SWITCHING
    else:
        return runtime.supports_user


async def lift_network(runtime: VerifiersRuntime) -> None:
    """Give a sandbox the whole network again, which its agent may not have had."""
    await backend_of(runtime).prepare_execution(None)


def abilities_of(runtime: VerifiersRuntime) -> SandboxAbilities:
    """Return what a sandbox can do, whoever wrote its runtime."""
    return runtime if isinstance(runtime, SandboxAbilities) else _OfVerifiers(runtime)


class _OfVerifiers(SandboxAbilities):
    """The abilities of a runtime that is not written for this interface, such as verifiers' own."""

    def __init__(self, runtime: VerifiersRuntime) -> None:
        self._runtime = runtime

    @property
    def is_this_machine(self) -> bool:
        return isinstance(backend_of(self._runtime), _THIS_MACHINE)

    @property
    def container(self) -> tuple[str, str] | None:
        box: Any = backend_of(self._runtime)
        if AFTER_0_4_0:
            engine = "docker" if isinstance(box, DockerBackend) and box._host_backend is None else None
        else:
            engine = None if getattr(box, "_host", None) is not None else getattr(box, "engine", None)
        container = getattr(getattr(self._runtime, "info", None), "id", None)
        return (engine, str(container)) if engine in ("docker", "podman") and container else None


def exec_command(runtime: VerifiersRuntime, env: dict[str, str]) -> list[str] | None:
    """Return what runs the program whose words follow, in verifiers' own container on this machine; or None."""
    seen = runtime.process_env(env)
    if AFTER_0_4_0:
        box = runtime.backend
        if not isinstance(box, DockerBackend) or box._host_backend is not None:
            return None
        return list(box._exec_argv(seen, user=runtime.user))
    else:
        return list(runtime._exec(seen)) if isinstance(runtime, ContainerRuntime) and runtime._host is None else None


def asked_network(data: TaskData) -> NetworkPolicyConfig:
    """Return what a task's sandbox may reach."""
    if AFTER_0_4_0:
        return data.network
    else:
        return NetworkPolicyConfig(allow=data.network_allow, block=data.network_block)


def network_fields(allow: list[str]) -> dict[str, Any]:
    """The fields of a task's data that bound what its sandbox may reach to `allow`."""
    if AFTER_0_4_0:
        return {"network": NetworkPolicyConfig(allow=allow)}
    else:
        return {"network_allow": allow}


def drop_with(trace: Trace[Any, Any, Any], main: Trace[Any, Any, Any]) -> None:
    """Leave `trace` out of training and reward means where `main` is left out; 0.4.0 leaves none out."""
    if AFTER_0_4_0 and main.dropped is not None:
        trace.drop(main.dropped)


def index_nodes(trace: Trace[Any, Any, Any], dialect: type[Dialect[Any]], index: dict[Any, int]) -> None:
    """Let a trace find its nodes in `index`, into which those go that it has; after 0.4.0 there is one per dialect."""
    for number, node in enumerate(trace.nodes):
        if AFTER_0_4_0:
            key = graph._node_key(trace, node.parent, node.message, node.tools, dialect=dialect.name)
        else:
            key = graph._node_key(node.parent, node.message, node.tools)
        index[key] = number
    if AFTER_0_4_0:
        trace._head_index = {dialect.name: index}
    else:
        trace._head_index = index


def error_body(dialect: Dialect[Any], message: str, status: int) -> dict[str, Any]:
    if AFTER_0_4_0:  # noqa: SIM108 - one branch for each version's type checker
        said = dialect.error_body(message, status_code=status)
    else:
        said = dialect.error_body(message)
    return dict(said)


def hidden_fields(holder: "Trace[Any, Any, Any] | VerifiersRuntime | BaseException") -> dict[str, Any]:
    """Return what a trace, a view of a sandbox or an error carries that is in no dump.

    Hook (verifiers): a mapping of `Trace` and `Runtime` for whoever plays a rollout, which views share and dumps leave
    out.
    """
    fields: dict[str, Any] | None = holder.__pydantic_private__ if isinstance(holder, Trace) else vars(holder)
    assert fields is not None
    return fields


def limit_connections(client: Any, most: int, kept: int) -> None:
    """Bound the connections of a client of Prime's SDK (0.5.1) to its gateway, which reads this at its first use.

    Hook (verifiers): limits in `PrimeConfig`, for the client that it makes.
    """
    client._max_connections, client._max_keepalive_connections = most, kept


async def forget_access(client: Any, sandbox_id: str) -> None:
    """Have a client of Prime's SDK (0.5.1) forget its access to one sandbox: it keeps that to every sandbox that ever
    was, and writes all to a file each time.

    Hook (prime-sandboxes): `AsyncSandboxClient.delete` that does it.
    """
    await client._auth_cache.invalidate(sandbox_id)

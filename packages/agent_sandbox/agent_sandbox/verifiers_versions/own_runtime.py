"""What a runtime of our own derives from.

0.4.0: `Runtime` is both the sandbox and what programs get to use. 0.4.1 (dev18) parts it into a `RuntimeBackend`, which
is the sandbox, and a frozen `Runtime`, which is a view of it with variables and a user bound; dev52 renamed much of it.

`OwnRuntime` is written like 0.4.0's `Runtime` on both: one class with `start`, `run`, `open_process`, `_read`, `write`,
`cleanup` and so on, whose views share everything but `env`, `user` and `home`. When 0.4.0 is no longer supported, its
subclasses become backends and this file goes.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

from verifiers.v1.runtimes import ProgramResult, Runtime, RuntimeProcess, SubprocessConfig
from verifiers.v1.runtimes.base import register

from agent_sandbox.verifiers_versions.installed import AFTER_0_4_0

if AFTER_0_4_0:
    import asyncio
    from types import MappingProxyType
    from typing import Any, ClassVar, Self

    from verifiers.v1.runtimes import BaseRuntimeInfo, RuntimeBackend, SubprocessBackend
    from verifiers.v1.utils.aio import run_shielded

    class OwnBackend(RuntimeBackend):
        """The backend of an `OwnRuntime`: everything that verifiers asks of it, its runtime answers.

        A runtime that users name as a custom one has a subclass of this, which makes the runtime and says what it
        supports.
        """

        is_local = True

        def __init__(self, runtime: "OwnRuntime", name: str | None = None) -> None:
            super().__init__(name)
            self.runtime = runtime
            self.config: Any = None

        def bind(self, *, env: Mapping[str, str] | None = None) -> "OwnRuntime":
            """The runtime with these variables, or with its own."""
            return self.runtime.with_env(self.env if env is None else env)

        async def start(self) -> None:
            """Start the runtime."""
            await self.runtime.start()

        async def teardown(self) -> None:
            """Remove the runtime; idempotent."""
            await self.runtime.teardown()

        def cleanup(self) -> None:
            """Remove the runtime without an event loop; idempotent."""
            self.runtime.cleanup()

        async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            """Start a process through one of the runtime's views."""
            return await self._own(runtime).open_process(argv, env)

        async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
            """Run a command to its end through one of the runtime's views."""
            return await self._own(runtime).run(argv, env)

        async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
            """Read a file through one of the runtime's views."""
            return await self._own(runtime)._read(path, max_bytes)

        async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
            """Write a file through one of the runtime's views."""
            await self._own(runtime).write(path, data)

        def host_url(self, url: str) -> str:
            """The URL at which a program inside reaches `url`."""
            return self.runtime.host_url(url)

        async def expose(self, port: int) -> str:
            """The URL at which the host reaches a port inside."""
            return await self.runtime.expose(port)

        def _own(self, runtime: Runtime) -> "OwnRuntime":
            assert isinstance(runtime, OwnRuntime)
            return runtime

    class OwnRuntime(Runtime):
        """A sandbox of our own and a view of it in one, as `Runtime` of verifiers 0.4.0 is."""

        __slots__ = ("env", "home", "user")

        supports_live_processes: ClassVar[bool] = True

        def __init__(self, name: str | None = None, backend: RuntimeBackend | None = None) -> None:
            super().__init__(OwnBackend(self, name) if backend is None else backend)

        @property
        def config(self) -> Any:
            """The configuration that verifiers sees."""
            return getattr(self.backend, "config")  # noqa: B009

        @config.setter
        def config(self, config: Any) -> None:
            setattr(self.backend, "config", config)  # noqa: B010

        @property
        def info(self) -> Any:
            """What the trace says of the sandbox."""
            return self.backend.info

        @info.setter
        def info(self, info: BaseRuntimeInfo) -> None:
            self.backend.info = info

        @property
        def stopped(self) -> bool:
            """Whether teardown has begun."""
            return self.backend.stopped

        def with_env(self, env: Mapping[str, str]) -> Self:
            """The same sandbox with these variables in every process."""
            return self._view(env, self.user, self.home)

        def with_user(self, user: str | None, home: str | None = None) -> Self:
            """The same sandbox with every process of this user; None is its default user.

            Raises:
                ValueError: the sandbox has one user only.
            """
            if user is not None and not self.backend.SUPPORTS_USER_SWITCHING:
                raise ValueError(f"{type(self).__name__} cannot run commands as another user")
            return self._view(self.env, user, home if user is not None else None)

        def __copy__(self) -> Self:
            """Another view, whose own attributes can be set without changing this one."""
            copied = self._view(self.env, self.user, self.home)
            object.__setattr__(copied, "__dict__", dict(self.__dict__))
            return copied

        def _view(self, env: Mapping[str, str], user: str | None, home: str | None) -> Self:
            view = object.__new__(type(self))
            object.__setattr__(view, "__dict__", self.__dict__)
            for name, value in (("env", MappingProxyType(dict(env))), ("user", user), ("home", home)):
                object.__setattr__(view, name, value)
            return view

        async def start(self) -> None:
            """Start the sandbox."""
            raise NotImplementedError

        async def stop(self) -> None:
            """Remove the sandbox, also when the caller is cancelled meanwhile."""
            self.backend.stopped = True
            await run_shielded(self.teardown())

        async def teardown(self) -> None:
            """Remove the sandbox; idempotent."""
            await asyncio.to_thread(self.cleanup)

        def cleanup(self) -> None:
            """Remove the sandbox without an event loop; idempotent."""

        async def open_process(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            """Start a process whose three streams stay open."""
            raise NotImplementedError

        async def exec(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            """What verifiers calls `open_process` now."""
            return await self.open_process(argv, env)

        async def prepare_execution(self, routes: list[str] | None) -> None:
            """Enforce the network policy for the agent; without routes, lift it."""

        async def run_program(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
            """Run the agent's program to its end."""
            return await self.run(argv, env)

        async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
            raise NotImplementedError

    class OwnSubprocessRuntime(OwnRuntime):
        """verifiers' subprocess runtime, to be derived from."""

        def __init__(self, config: SubprocessConfig, name: str | None = None) -> None:
            super().__init__(backend=SubprocessBackend(config, name))

        async def start(self) -> None:
            """Make the work directory."""
            await self.backend.start()

        async def teardown(self) -> None:
            """End background processes and remove the work directory; idempotent."""
            await self.backend.teardown()

        def cleanup(self) -> None:
            """End background processes and remove the work directory; idempotent."""
            self.backend.cleanup()

        async def open_process(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            """Start a process whose three streams stay open."""
            return await self.backend.exec(self, argv, env)

else:
    from verifiers.v1.runtimes import SubprocessRuntime

    OwnRuntime = Runtime
    OwnSubprocessRuntime = SubprocessRuntime

RuntimeT = TypeVar("RuntimeT", bound=OwnRuntime)


@contextlib.asynccontextmanager
async def provisioned(runtime: RuntimeT, env: Mapping[str, str] | None = None) -> AsyncIterator[RuntimeT]:
    """Start a runtime of our own and remove it on exit, whatever happens.

    Args:
        runtime: not started yet.
        env: variables of every process in it.

    Raises:
        SandboxError: it could not be started.
    """
    if AFTER_0_4_0:
        register(runtime)  # type: ignore[arg-type]  # it asks for `cleanup` and nothing else
        runtime = runtime.with_env(env or {})
    else:
        register(runtime)
        runtime.env = dict(env or {})
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()

"""`RuntimeBackend`, which is a sandbox, and `Runtime`, a view of it with variables and a user bound, as 0.4.1 has them.

0.4.0 has one class for both. Its names (`open_process`, `_read`, `with_user`, …) are those of the view here, so that
verifiers 0.4.0 finds what it calls.
"""

from agent_sandbox.verifiers_040.installed import AFTER_0_4_0

if AFTER_0_4_0:
    from verifiers.v1.runtimes import Runtime as Runtime
    from verifiers.v1.runtimes import RuntimeBackend as RuntimeBackend
else:
    import asyncio
    import uuid
    from collections.abc import Mapping
    from typing import Any, ClassVar, Self, cast

    from verifiers.v1.configs.runtime import NetworkPolicyConfig
    from verifiers.v1.runtimes import ProgramResult, RuntimeProcess
    from verifiers.v1.runtimes import Runtime as RuntimeOf040
    from verifiers.v1.utils.aio import run_shielded

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
            """The view with these variables, or with the sandbox's own."""
            return Runtime(self, env=self.env if env is None else env)

        async def start(self) -> None:
            """Start it."""
            raise NotImplementedError

        async def stop(self) -> None:
            """Remove it, also when the caller is cancelled meanwhile."""
            self.stopped = True
            await run_shielded(self.teardown())

        async def teardown(self) -> None:
            """Remove it; idempotent."""
            await asyncio.to_thread(self.cleanup)

        def cleanup(self) -> None:
            """Remove it without an event loop; idempotent."""

        async def exec(self, runtime: "Runtime", argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            """Start a process whose three streams stay open."""
            raise NotImplementedError

        async def run(self, runtime: "Runtime", argv: list[str], env: dict[str, str]) -> ProgramResult:
            """Run a command to its end."""
            raise NotImplementedError

        async def run_background(self, runtime: "Runtime", argv: list[str], env: dict[str, str], log: str) -> None:
            """Start a process that runs until `stop`."""
            raise NotImplementedError

        async def read(self, runtime: "Runtime", path: str, max_bytes: int | None = None) -> bytes:
            """The first `max_bytes` bytes of a file, or all of it."""
            raise NotImplementedError

        async def write(self, runtime: "Runtime", path: str, data: bytes) -> None:
            """Write a file and make its parents."""
            raise NotImplementedError

        def host_url(self, url: str) -> str:
            """The URL at which a program inside reaches `url`."""
            return url

        async def expose(self, port: int) -> str:
            """The URL at which the host reaches a port inside."""
            return f"http://127.0.0.1:{port}"

        async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
            """Enforce the network policy for the agent; without routes, lift it."""

        @property
        def network_restricted(self) -> bool:
            """Whether the configuration bounds what the agent may reach."""
            return isinstance(self.config, NetworkPolicyConfig) and self.config.network_restricted

    class Runtime(RuntimeOf040):
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
            """The configuration that verifiers sees."""
            return self.backend.config

        @property
        def info(self) -> Any:  # type: ignore[override]  # a plain attribute there
            """What the trace says of the sandbox."""
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
            """Whether commands can run as another user."""
            return self.backend.SUPPORTS_USER_SWITCHING

        @property
        def network_restricted(self) -> bool:
            """Whether the configuration bounds what the agent may reach."""
            return self.backend.network_restricted

        def with_env(self, env: Mapping[str, str]) -> Self:
            """The same sandbox with these variables in every process."""
            return cast(Self, super().with_env(dict(env)))

        def with_user(self, user: str | None, home: str | None = None) -> Self:
            """The same sandbox with every process of this user; None is its default user."""
            return cast(Self, super().with_user(user, home))

        async def start(self) -> None:
            """Start the sandbox."""
            await self.backend.start()

        async def stop(self) -> None:
            """Remove the sandbox, also when the caller is cancelled meanwhile."""
            await self.backend.stop()

        async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
            """Run a command to its end."""
            return await self.backend.run(self, argv, env)

        async def exec(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            """Start a process whose three streams stay open."""
            return await self.backend.exec(self, argv, env)

        async def open_process(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
            """What 0.4.0 calls `exec`."""
            return await self.exec(argv, env)

        async def run_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
            """Start a process that runs until `stop`."""
            await self.backend.run_background(self, argv, env, log)

        async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
            return await self.backend.read(self, path, max_bytes)

        async def write(self, path: str, data: bytes) -> None:
            """Write a file and make its parents."""
            await self.backend.write(self, path, data)

        def host_url(self, url: str) -> str:
            """The URL at which a program inside reaches `url`."""
            return self.backend.host_url(url)

        async def expose(self, port: int) -> str:
            """The URL at which the host reaches a port inside."""
            return await self.backend.expose(port)

        async def prepare_execution(self, routes: list[str] | None) -> None:
            """Enforce the network policy for the agent; without routes, lift it."""
            await self.backend.prepare_execution(routes)

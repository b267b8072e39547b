"""`RuntimeBackend`, which is a sandbox, and `Runtime`, a view of it with variables and a user bound, as 0.4.1 has them.

0.4.0 has one class for both. Its names (`open_process`, `_read`, `with_user`, …) are those of the view here, so that
verifiers 0.4.0 finds what it calls.
"""

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0

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

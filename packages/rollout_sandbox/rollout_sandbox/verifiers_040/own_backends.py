"""verifiers' own `SubprocessBackend` and `PrimeBackend`, to be derived from; 0.4.0 has a runtime of each instead."""

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0

if AFTER_0_4_0:
    from verifiers.v1.runtimes import PrimeBackend as PrimeBackend
    from verifiers.v1.runtimes import SubprocessBackend as SubprocessBackend
else:
    from typing import Any

    from verifiers.v1.configs.runtime import NetworkPolicyConfig
    from verifiers.v1.runtimes import (
        PrimeConfig,
        PrimeRuntime,
        ProgramResult,
        RuntimeProcess,
        SubprocessConfig,
        SubprocessRuntime,
    )
    from verifiers.v1.runtimes import Runtime as RuntimeOf040

    from rollout_sandbox.verifiers_040.runtime import Runtime, RuntimeBackend

    class _BackendOf040(RuntimeBackend):
        """A backend behind which a runtime of 0.4.0 stands."""

        def __init__(self, inner: SubprocessRuntime | PrimeRuntime) -> None:
            super().__init__(inner.name)
            self._inner = inner
            self.is_local, self.info, self.config = inner.is_local, inner.info, inner.config

        def _seen(self, runtime: RuntimeOf040) -> RuntimeOf040:
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
            """As the subclass of `PrimeBackend` runs it."""
            seen: Any = self
            return await self.backend.run(seen, argv, env)

    class PrimeBackend(_BackendOf040):
        """A Prime sandbox; a subclass says how commands are run in it."""

        SUPPORTS_TASK_IMAGES = True
        SUPPORTS_USER_SWITCHING = True
        _client: Any

        def __init__(self, config: PrimeConfig, name: str | None = None) -> None:
            super().__init__(_PrimeRuntime(self, config, name))

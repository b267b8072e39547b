"""`OpenCodeHarness`: the OpenCode coding agent as a verifiers harness, on any runtime and for any taskset."""

import asyncio
from typing import Any, ClassVar

from rollout_sandbox.compat import is_this_machine
from rollout_sandbox.confined import Bind
from rollout_sandbox.toolbox.processes import EndsAgentProcesses
from verifiers.v1.clients import ModelContext
from verifiers.v1.errors import HarnessError
from verifiers.v1.harness import Harness
from verifiers.v1.harnesses.utils.install import remove_dir
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData

from opencode_env.agents.opencode.build_cache import CachedBuild, cached_build, ensure_build, host_platform
from opencode_env.agents.opencode.harness_config import OpenCodeHarnessConfig
from opencode_env.agents.opencode.install import install
from opencode_env.agents.opencode.install_record import InstallRecord
from opencode_env.agents.opencode.session import OpenCodeSession
from opencode_env.cli_agent.guard import GuardedHarness
from opencode_env.cli_agent.process_fence import ProcessFence
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.cli_agent.traces import AnyTrace


class OpenCodeHarness(GuardedHarness[OpenCodeHarnessConfig], Harness[OpenCodeHarnessConfig]):
    """Runs `opencode run` in the rollout's sandbox, every model call through the interception."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_SKILLS = True
    # The confined local sandbox is of the `subprocess` type; a plain subprocess is refused in `setup`.
    NEEDS_CONTAINER = False
    CONTINUES_TURNS: ClassVar[bool] = True
    """Whether a rollout can go on from a kept turn."""
    SESSION: ClassVar[type[OpenCodeSession]] = OpenCodeSession
    """What drives one rollout; a subclass of this harness may name its own."""

    def __init__(self, config: OpenCodeHarnessConfig) -> None:
        super().__init__(config)
        self._installed: dict[str, tuple[str, InstallRecord]] = {}
        """Directory of the programs and how they came by runtime name, between `setup` and `session` of a rollout."""

    async def setup(self, runtime: Runtime) -> None:
        """Install the pinned OpenCode in `runtime`.

        Raises:
            HarnessError: on a plain subprocess runtime, or when OpenCode cannot be installed.
        """
        if is_this_machine(runtime) and not isinstance(runtime, EndsAgentProcesses):
            raise HarnessError(
                "OpenCode would run on this machine without confinement: use --env.id opencode-env (confined local "
                "sandbox) or a container (--env.agent.runtime.type docker | podman | prime)"
            )
        self._installed[runtime.name] = await self._install(runtime)

    async def _install(self, runtime: Runtime) -> tuple[str, InstallRecord]:
        record = InstallRecord()
        return await install(self.config, runtime, record=record), record

    async def local_binds(self) -> list[Bind]:
        """The host's cached build, for the confined local sandbox to show read-only where `install` looks for it.

        Raises:
            HarnessError: when the build cannot be downloaded.
        """
        if self.config.install == "image":
            return []
        return [self._bind(await asyncio.to_thread(ensure_build, self.config.version, host_platform()))]

    def _bind(self, build: CachedBuild) -> Bind:
        return Bind(build.directory, f"{self.config.asset_dir}/{build.directory.name}")

    def container_binds(self) -> list[Bind]:
        """The host's cached build, for a container on this machine to show read-only where `install` looks for it.
        Nothing while this machine has none: the image may hold OpenCode, and what it lacks is uploaded once."""
        if self.config.install == "image":
            return []
        build = cached_build(self.config.version, host_platform())
        return [] if build is None else [self._bind(build)]

    async def fenced_session(
        self, fence: ProcessFence, ctx: ModelContext, trace: AnyTrace, runtime: Runtime, *connection: Any, **_: Any
    ) -> OpenCodeSession:
        """Prepare the rollout's OpenCode; the mark is printed by the command that prepares its files."""
        known = self._installed.pop(runtime.name, None)
        programs, record = await self._install(runtime) if known is None else known
        record.put_on(trace)
        session = self.SESSION(self, ctx, trace, runtime, *connection, fence=fence, programs=programs)
        await session.prepare()
        rollout_of(trace).agent_directory = session.state
        return session

    async def cleanup(self, trace: AnyTrace, runtime: Runtime) -> None:
        """Remove OpenCode's files where no sandbox takes them along."""
        state = rollout_of(trace).agent_directory
        if state and is_this_machine(runtime):
            await remove_dir(runtime, state, "OpenCode's files")

    async def launch(
        self,
        ctx: ModelContext,
        trace: AnyTrace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        """Run one whole session of a single segment, for a caller that does not drive sessions."""
        session = await self.session(ctx, trace, runtime, endpoint, secret, mcp_urls, data)
        try:
            await session.turn()
        finally:
            await session.close()
        return ProgramResult(0, "", "")

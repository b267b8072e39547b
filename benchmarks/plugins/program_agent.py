"""An agent whose program is a simulated one, started in the sandbox like any: it stands for OpenCode, and costs little.

It has OpenCode's echo rules and request rules. `--env.id program-agent` is `CliAgentEnv` whole, on any runtime.
"""

import time
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from rollout_sandbox.compat import run_program
from rollout_sandbox.confined import Bind

__all__ = ["ProgramAgentEnv", "ProgramAgentHarness"]

PLACE = "/simulated"


class ProgramAgentConfig(OpenCodeHarnessConfig):
    """Where the program is."""

    directory: str = ""
    """A host directory with `program.py`, which local sandboxes show as /simulated."""


class ProgramAgentHarness(vf.Harness[ProgramAgentConfig]):
    """Runs the program, and says how long after its end that was seen."""

    NEEDS_CONTAINER = False

    async def local_binds(self) -> list[Bind]:
        """The program's directory."""
        return [Bind(Path(self.config.directory), PLACE)]

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: Any,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        argv = ["/usr/bin/python3", f"{PLACE}/program.py", str(data.idx), ctx.model, endpoint, secret]
        result = await run_program(runtime, argv, {})
        if result.exit_code == 0:
            trace.record_metrics({"seen_after": time.monotonic() - float(result.stdout)})
        return result


class ProgramAgentEnv(CliAgentEnv[CliAgentEnvConfig], vf.Env[CliAgentEnvConfig]):
    """`CliAgentEnv` with nothing of its own."""

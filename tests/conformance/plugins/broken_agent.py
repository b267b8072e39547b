"""A small sound agent with tools of its own, that can be broken on purpose."""

import json
import os
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents import Patience
from rollout_sandbox.compat import run_program

__all__ = ["BrokenAgentHarness"]

PROGRAM = Path(__file__).with_name("broken_agent_program.py")


class BrokenAgentConfig(vf.HarnessConfig):
    """What is wrong with it."""

    faults: str = ""
    """Words: `quiet`: asks no model and exits 0. `lingers`: never ends after its answer. `swallows`: exits 0
    whatever its model calls answered. `leaks`: hands the provider's key to its program. `deaf`: runs no command."""


class BrokenAgentHarness(vf.Harness[BrokenAgentConfig]):
    """Runs a Python program in the sandbox; its tool for shell commands has a name and parameters of its own."""

    NEEDS_CONTAINER = False

    def patience(self) -> Patience:
        """Its program never sends a call again."""
        return Patience(sends=1)

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
        faults = self.config.faults.split()
        told = {"url": endpoint, "secret": secret, "model": ctx.model, "prompt": data.prompt, "faults": faults}
        env = {"AGENT": json.dumps(told)}
        if "leaks" in faults:
            env["PROVIDER_KEY"] = os.environ["CONFORMANCE_PROVIDER_KEY"]
        return await run_program(runtime, ["python3", "-c", PROGRAM.read_text()], env)

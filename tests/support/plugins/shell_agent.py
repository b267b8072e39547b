"""A second CLI agent: a shell script that asks the model once and writes its answer to a file."""

import json
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents import run_program
from opencode_rubrics import cleanup

__all__ = ["ShellAgentHarness"]

SCRIPT = Path(__file__).with_name("shell_agent.sh")


class ShellAgentHarness(vf.Harness[vf.HarnessConfig]):
    """Runs the script in the sandbox with the endpoint in its environment; it has a hook of its own."""

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
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        env = {"ENDPOINT": endpoint, "SECRET": secret, "BODY": json.dumps(body)}
        result = await run_program(runtime, ["sh", "-c", SCRIPT.read_text()], env)
        trace.info["agent"] = {"exit_code": result.exit_code}
        return result

    @cleanup(priority=10)
    async def keep_report(self, trace: Any, runtime: vf.Runtime) -> None:
        trace.info["report"] = (await runtime.read("/app/report.txt", 10_000)).decode()

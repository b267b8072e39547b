"""One rollout of OpenCode with the RLM plugin: what it adds to the state directory and to `opencode.json`."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, ClassVar

from opencode_env.agents.opencode import OpenCodeHarness
from opencode_env.agents.opencode.config import STATE_URL, merge
from opencode_env.agents.opencode.harness import OpenCodeSession
from opencode_env.cli_agent.interception import SubRollout
from opencode_env.cli_agent.rollout import rollout_of
from rollout_sandbox.programs import program_text
from verifiers.v1.clients import ModelContext
from verifiers.v1.errors import HarnessError
from verifiers.v1.harness import Harness

from opencode_rlm.config import OpenCodeRLMHarnessConfig

SUB_AGENTS = ("general", "explore")
"""OpenCode's own sub-agents, which the `task` tool starts."""


class OpenCodeRLMSession(OpenCodeSession):
    """An OpenCode session whose model calls are marked with their role."""

    async def prepare(self) -> None:
        """Write OpenCode's files and demand the plugin's mark on the first model call.

        Raises:
            HarnessError: the environment does not route by role, so that sub calls would count as the agent's own.
        """
        self._sub_rollout().demanded_by = "OpenCode did not load the opencode-rlm plugin"
        await super().prepare()

    def extend_config(self, built: dict[str, Any]) -> dict[str, Any]:
        """Add the plugin and the sub-agents' bounds; the user's own `opencode_config` stays on top."""
        settings = self._sub_rollout().settings
        nested = {"permission": {"task": "allow"}} if settings.max_depth > 1 else {}
        added: dict[str, Any] = {
            "subagent_depth": settings.max_depth,
            "agent": {name: {"steps": settings.max_turns, **nested} for name in SUB_AGENTS},
        }
        if settings.max_depth == 0:
            added["agent"]["build"] = {"tools": {"task": False}}
        extended = merge(merge(built, added), self.harness.config.opencode_config)
        return {**extended, "plugin": [*extended["plugin"], f"{STATE_URL}/rlm.js"]}

    def models(self) -> Sequence[ModelContext]:
        """The agent's own and the one of its sub-agents."""
        return (self.ctx, self._sub_rollout().session.ctx)

    def extra_files(self) -> Mapping[str, str]:
        """The plugin with its settings, and the `llm` command."""
        config, settings = self._config(), self._sub_rollout().settings
        description = config.subcall_description
        plugin = {
            "endpoint": self.endpoint,
            "secret": self.secret,
            "model": self.ctx.model,
            "parallel": settings.max_parallel,
            "output": config.subcall_output,
            "description": _text("llm_subcall.md") if description is None else description,
        }
        return {
            "rlm.js": program_text("rlm.js", "opencode_rlm"),
            "rlm.json": json.dumps(plugin),
            "programs": f"{self._programs}\n",
            "bin/llm": program_text("llm.sh", "opencode_rlm"),
        }

    def system_append(self) -> str:
        """The texts behind the system prompt, the section about recursion first."""
        section = self._config().recursion_prompt
        section = _text("recursion.md") if section is None else section
        return "\n\n".join(part for part in (section.strip(), super().system_append()) if part)

    def _config(self) -> OpenCodeRLMHarnessConfig:
        config = self.harness.config
        assert isinstance(config, OpenCodeRLMHarnessConfig)
        return config

    def _sub_rollout(self) -> SubRollout:
        rollout = rollout_of(self.trace).live_sub
        if rollout is None or not rollout.routed:
            raise HarnessError(
                "the opencode-rlm harness needs the environment that tells main from sub calls: use "
                "--env.id opencode-rlm, or the harness opencode-env without recursion"
            )
        return rollout


def _text(name: str) -> str:
    return (files("opencode_rlm") / "prompts" / name).read_text().strip()


class OpenCodeRLMHarness(OpenCodeHarness, Harness[OpenCodeRLMHarnessConfig]):
    """Runs OpenCode so that it can call language models from inside its work; only in `OpenCodeRLMEnv`."""

    SESSION: ClassVar[type[OpenCodeSession]] = OpenCodeRLMSession

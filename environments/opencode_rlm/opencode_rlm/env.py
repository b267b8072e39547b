"""`OpenCodeRLMEnv`: an OpenCode agent whose sub-LLM calls have a seat, a trace and budgets of their own.

First the options, then the agent's side (what its harness adds to OpenCode's files), then the environment.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Self

from opencode_env.agents.opencode import OpenCodeHarness, OpenCodeHarnessConfig
from opencode_env.agents.opencode.config import STATE_URL, merge
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.agents.opencode.harness import OpenCodeSession
from opencode_env.cli_agent.env import CliAgentEnv
from opencode_env.cli_agent.interception import SubRollout, SubSettings
from opencode_env.cli_agent.rollout import Rollout, rollout_of
from opencode_env.cli_agent.seats import local_seat
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskset
from pydantic import Field, FiniteFloat, model_validator
from rollout_sandbox.compat import drop_with
from rollout_sandbox.programs import program_text
from verifiers.v1.agent import Agents
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.agent import AgentConfig, TimeoutConfig
from verifiers.v1.env import Env
from verifiers.v1.episode import Episode
from verifiers.v1.errors import HarnessError
from verifiers.v1.harness import Harness
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

logger = logging.getLogger("verifiers.v1.opencode_rlm")

SUB_AGENTS = ("general", "explore")
"""OpenCode's own sub-agents, which the `task` tool starts."""
_SAMPLES = Path(__file__).parent / "samples" / "needles.jsonl"


class OpenCodeRLMHarnessConfig(OpenCodeHarnessConfig):
    """OpenCode with the RLM plugin."""

    disabled_tools: list[str] | None = Field(default_factory=lambda: ["question"])
    """Built-in tools the model does not get: nobody answers a `question`."""
    recursion_prompt: str | None = None
    """Section of the system prompt about sub-LLM calls; None takes the one that ships, empty leaves it out."""
    subcall_description: str | None = None
    """What the model reads about the tool `llm_subcall`; None takes the text that ships."""
    subcall_output: int = Field(20_000, ge=200)
    """Characters of answers that one `llm_subcall` returns; the whole goes to a file whose path is returned."""


class OpenCodeRLMEnvConfig(OpenCodeEnvConfig):
    """Recursive OpenCode; over any taskset with `--env.id opencode-rlm`."""

    agent: AgentConfig = local_seat(OpenCodeRLMHarnessConfig(id="opencode-rlm"))
    """The main agent: OpenCode with the RLM plugin, in the confined local sandbox unless another runtime is named."""
    sub: AgentConfig = local_seat(NullHarnessConfig(id="null"))
    """Who answers sub-LLM calls: model, client, sampling, and budgets over all sub calls of a rollout (`max_turns`,
    `max_input_tokens`, `max_output_tokens`, `max_total_tokens`). It runs no program, so its harness, runtime and
    timeouts mean nothing."""

    sub_model: str | None = None
    """Short for `sub.model`; None = the run's model."""
    max_sub_llm_parallelism: int = Field(10, ge=1)
    """Sub calls at once in one rollout; more wait in the order in which they came."""
    sub_llm_max_turns: int = Field(10, ge=1)
    """Answers per sub conversation: a sub-agent is asked for its conclusion with the last one."""
    sub_timeout: FiniteFloat = Field(120.0, gt=0)
    """Seconds for one sub call at the model endpoint; waiting for its place does not count."""
    include_sub_llm_in_trajectory: bool = False
    """Whether the sub trace is trainable; it then carries the main trace's rewards."""
    max_depth: int = Field(1, ge=0)
    """How deep sub-agents (`task` tool) may nest; 0 takes the tool away. One-shot calls do not count."""

    @model_validator(mode="after")
    def _resolve_sub_seat(self) -> Self:
        if self.sub_model is not None and self.sub.model not in (None, self.sub_model):
            raise ValueError(
                f"--env.sub-model {self.sub_model} and --env.sub.model {self.sub.model} differ: give one of them"
            )
        if self.sub.timeout != TimeoutConfig():
            raise ValueError("--env.sub.timeout does not apply, the seat runs no program: use --env.sub-timeout")
        if self.sub_model is not None and self.sub.model is None:
            self.sub = self.sub.model_copy(update={"model": self.sub_model})
        return self

    @property
    def sub_settings(self) -> SubSettings:
        """Return what bounds the sub calls of one rollout."""
        return SubSettings(
            max_parallel=self.max_sub_llm_parallelism,
            max_turns=self.sub_llm_max_turns,
            timeout=self.sub_timeout,
            max_depth=self.max_depth,
        )


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


class OpenCodeRLMEnv(CliAgentEnv[OpenCodeRLMEnvConfig], Env[OpenCodeRLMEnvConfig]):
    """Plays the main agent in a sandbox and serves its sub-LLM calls from the `sub` seat."""

    SEATS_WITHOUT_SANDBOX: ClassVar[frozenset[str]] = frozenset({"sub", "user", "summary"})

    async def setup(self, agents: Agents) -> None:
        """Decide whether the sub trace trains; a user's never does."""
        await super().setup(agents)
        agents.sub.trainable = self.config.include_sub_llm_in_trajectory

    async def run_agent(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout) -> None:
        """Run the main agent with a sub side that lives as long as its run."""
        rollout.make_sub = lambda main: SubRollout(main, agents.sub, self.config.sub_settings)
        await super().run_agent(task, agents, box, rollout)
        if rollout.sub is not None and rollout.sub.trace.calls:
            logger.info("%s", _describe(rollout.sub))

    async def finalize(self, task: Task[Any, Any, Any], episode: Episode[Any, Any, Any]) -> None:
        """Put the sub traces into the episode, with the standing of their main traces."""
        for main in list(episode.traces):
            side = rollout_of(main).sub
            if side is None or not side.trace.calls:
                continue
            sub = side.trace
            if not main.ok:
                sub.ok, sub.errors, sub.stop_condition = False, list(main.errors), main.stop_condition
            elif self.config.include_sub_llm_in_trajectory:
                sub.rewards = dict(main.rewards)
            drop_with(sub, main)
            episode.traces.append(sub)


def _describe(side: SubRollout) -> str:
    metrics = side.main.metrics
    names = ("sub_llm_calls", "sub_llm_errors", "sub_llm_max_parallel", "sub_llm_prompt_tokens", "sub_llm_seconds")
    counts = " ".join(f"{name.removeprefix('sub_llm_')}={metrics[name] or 0:g}" for name in names)
    return f"sub-LLM calls: trace={side.main.id} {counts} model={side.session.ctx.model}"


class NeedleTaskset(OpenCodeTaskset):
    """`OpenCodeTaskset` whose own sample set is the needles; every other dataset works as there."""

    def load(self) -> Iterator[OpenCodeTask]:
        """Yield the tasks of the configured dataset, of the needles without one."""
        if self.config.dataset is None:
            self.config = self.config.model_copy(update={"dataset": str(_SAMPLES)})
        yield from super().load()

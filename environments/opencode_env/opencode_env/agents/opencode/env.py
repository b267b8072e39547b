"""`OpenCodeEnv`: the OpenCode harness in a `CliAgentEnv`, with kept turns, tool backends and simulated users."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import model_validator
from rollout_sandbox.compat import OPENCODE_HARNESSES
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.env import Env
from verifiers.v1.harnesses.null import NullHarnessConfig

from opencode_env.agents.named.npm import NPM_AGENTS, NpmAgents, NpmTree, agent_tree
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.builds import host_platform
from opencode_env.agents.opencode.state import program
from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from opencode_env.cli_agent.features import Feature
from opencode_env.cli_agent.seats import local_seat
from opencode_env.kept_turns.keeping import KeptTurns, TurnsConfig
from opencode_env.summary_seat import SummarySeat, require_compaction
from opencode_env.tool_backends.feature import BackendTools
from opencode_env.tool_backends.options import BackendsConfig
from opencode_env.user_simulation import SimulatedUsers, UserSimulationConfig


def opencode2_tree(version: str) -> NpmTree:
    """Return what the sandbox shows of a release of OpenCode 2, for verifiers' own `opencode` harness. That harness
    installs `@opencode/cli`, a package that brings every build and picks one in an install script. Here only the build
    for this processor is installed, and a program of ours stands where the harness starts it."""
    build = host_platform().package.replace("opencode-linux", "@opencode/cli-linux")
    programs = {"node_modules/.bin/opencode": program("opencode2.sh")}
    return agent_tree("opencode2", f"{build}@{version}", programs=programs)


class OpenCodeEnvConfig(CliAgentEnvConfig):
    """OpenCode in a sandbox; over any taskset with `--env.id opencode-env`."""

    agent: AgentConfig = local_seat(OpenCodeHarnessConfig(id="opencode-env"))
    """The seat: OpenCode in the confined local sandbox unless another runtime is named."""
    turns: TurnsConfig = TurnsConfig()
    """Turns that are kept, to be gone back to."""
    backends: BackendsConfig = BackendsConfig()
    """MCP servers whose tools the agent gets in every rollout."""
    user: AgentConfig = local_seat(NullHarnessConfig(id="null"))
    """Who plays the users that rows ask for: model, client, sampling and budgets. It runs no program, so its harness
    and runtime mean nothing; it never trains."""
    user_simulation: UserSimulationConfig = UserSimulationConfig()
    """How those users are played."""
    summary: AgentConfig = local_seat(NullHarnessConfig(id="null"))
    """Who summarises full histories, with compaction: model, client and sampling. It runs no program, so its harness,
    runtime and timeouts mean nothing; it never trains. None of the three: the model whose history it is, and that
    trains as `compaction-trains` says."""

    @model_validator(mode="before")
    @classmethod
    def _endpoint_without_type(cls, data: Any) -> Any:
        """An endpoint of a seat's own beside the agent's is an OpenAI-compatible one unless it says otherwise."""
        for name in ("sub", "user", "summary") if isinstance(data, dict) else ():
            match data.get(name):
                case {"client": dict(client)} as seat if "type" not in client:
                    data = {**data, name: {**seat, "client": {"type": "eval", **client}}}
        return data

    @model_validator(mode="after")
    def _backends_fail_before_the_agent_gives_up(self) -> Self:
        if self.agent.harness is not None:
            self.backends.require_below(self.agent.harness.tool_timeout)
        return self

    @model_validator(mode="after")
    def _summarises_where_there_is_compaction(self) -> Self:
        require_compaction(self.summary, self.agent.harness)
        return self

    def features(self) -> Sequence[Feature]:
        return (
            KeptTurns(self.turns, self),
            BackendTools(self.backends),
            SummarySeat(self.summary),
            SimulatedUsers(self.user_simulation, self.user),
        )


class OpenCodeEnv(CliAgentEnv[OpenCodeEnvConfig], Env[OpenCodeEnvConfig]):
    """Runs OpenCode on each task in a sandbox of its own and scores where it worked."""

    SEATS_WITHOUT_SANDBOX: ClassVar[frozenset[str]] = frozenset({"user", "summary"})
    NPM_AGENTS: ClassVar[NpmAgents] = {**NPM_AGENTS, **dict.fromkeys(OPENCODE_HARNESSES, opencode2_tree)}

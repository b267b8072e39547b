"""`ServerConfig`: every option of `opencode-openenv`."""

from typing import Any, Self

from pydantic import Field, FiniteFloat, SerializeAsAny, model_validator
from verifiers.v1.runtimes import RuntimeConfig, SubprocessConfig

from opencode_env.cli_agent.interception import GatewayConfig
from opencode_env.cli_agent.sandbox import LocalSandboxConfig
from opencode_env.cli_agent.seats import local_seat
from opencode_env.opencode import OpenCodeHarnessConfig
from opencode_env.opencode.env import OpenCodeEnvConfig
from opencode_env.openenv.listening import ListenConfig
from opencode_env.taskset.config import OpenCodeTasksetConfig


class ServerConfig(ListenConfig):
    """Where the server listens, whom it serves, and where rollouts run."""

    max_concurrent: int = Field(8, ge=1)
    """Rollouts at once."""
    max_queued: int = Field(64, ge=0)
    """Callers that may wait for a place; further ones are refused."""
    max_rollout_s: FiniteFloat = Field(14_400.0, gt=0)
    """Seconds that one rollout may take at most, by its `agent_timeout_s` and the limits of its commands together."""
    max_tokenizers: int = Field(16, ge=0)
    """Tokenizers that callers of `token_ids` may name while the server runs; each stays in its memory."""
    runtime: RuntimeConfig = SubprocessConfig()
    """Where rollouts run, as `--env.agent.runtime.*` of vf-eval; the default is the confined local sandbox."""
    sandbox: LocalSandboxConfig = LocalSandboxConfig()
    """The confined local sandbox, as `--env.sandbox.*`."""
    harness: SerializeAsAny[OpenCodeHarnessConfig] = OpenCodeHarnessConfig(id="opencode-env")
    """The agent, as `--env.agent.harness.*`."""
    gateway: GatewayConfig = GatewayConfig()
    """What one rollout may ask of the way to the model, as `--env.gateway.*`."""

    @model_validator(mode="before")
    @classmethod
    def _harness_by_id(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("harness"), dict):
            given["harness"].setdefault("id", "opencode-env")
        return given

    @model_validator(mode="after")
    def _agent_out_of_reach(self) -> Self:
        self.require_agents_out_of_reach(self.runtime, self.sandbox)
        return self

    @property
    def idle_session_s(self) -> float:
        """Seconds after which a session without an answer is given up: none can be as long in waiting and working."""
        return self.max_rollout_s * (2 + self.max_queued / self.max_concurrent)

    def environment(self) -> OpenCodeEnvConfig:
        """The environment whose rollouts are served."""
        agent = local_seat(self.harness).model_copy(update={"runtime": self.runtime})
        return OpenCodeEnvConfig(
            taskset=OpenCodeTasksetConfig(id="opencode-env"), agent=agent, sandbox=self.sandbox, gateway=self.gateway
        )

"""`ServerConfig`: every option of `opencode-openenv`."""

from typing import Any, Literal, Self

from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.cli_agent.interception import GatewayConfig
from opencode_env.taskset.config import OpenCodeTasksetConfig
from pydantic import Field, FiniteFloat, SerializeAsAny, model_validator
from rollout_sandbox.confined import LocalSandboxConfig
from verifiers.v1.configs.env import EnvConfig
from verifiers.v1.runtimes import RuntimeConfig, SubprocessConfig
from verifiers.v1.utils.loaders import env_config_type

from opencode_openenv.listening import ListenConfig


class ServerConfig(ListenConfig):
    """Sets where the server listens, whom it serves, and where rollouts run."""

    max_concurrent: int = Field(8, ge=1)
    """Rollouts at once."""
    max_queued: int = Field(64, ge=0)
    """Callers that may wait for a place; further ones are refused."""
    max_rollout_s: FiniteFloat = Field(14_400.0, gt=0)
    """Seconds that one rollout may take at most, by its `agent_timeout_s` and the limits of its commands together."""
    max_tokenizers: int = Field(16, ge=0)
    """Tokenizers that callers of `token_ids` may name while the server runs; each stays in its memory."""
    env_id: Literal["opencode-env", "opencode-rlm"] = "opencode-env"
    """The environment whose rollouts are served. `opencode-rlm` must be installed beside this package; its agents call
    language models from inside their work, which are turns of the role `sub`, at the caller's endpoint."""
    include_sub_llm_in_trajectory: bool = False
    """With `opencode-rlm`: whether the tokens of sub calls train (`loss_mask`)."""
    runtime: RuntimeConfig = SubprocessConfig()
    """Where rollouts run, as `--env.agent.runtime.*` of vf-eval; the default is the confined local sandbox."""
    sandbox: LocalSandboxConfig = LocalSandboxConfig()
    """The confined local sandbox, as `--env.sandbox.*`."""
    harness: SerializeAsAny[OpenCodeHarnessConfig] = OpenCodeHarnessConfig(id="opencode-env")
    """The agent, as `--env.agent.harness.*`."""
    gateway: GatewayConfig = GatewayConfig()
    """What one rollout may ask of the path to the model, as `--env.gateway.*`."""

    @model_validator(mode="before")
    @classmethod
    def _harness_by_id(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("harness"), dict):
            given["harness"].setdefault("id", "opencode-env")
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.require_agents_out_of_reach(self.runtime, self.sandbox)
        if self.include_sub_llm_in_trajectory and self.env_id != "opencode-rlm":
            raise ValueError("--include-sub-llm-in-trajectory is for --env-id opencode-rlm: leave it out")
        return self

    @property
    def idle_session_s(self) -> float:
        """Seconds after which a session without an answer is given up: none can be as long in waiting and working."""
        return self.max_rollout_s * (2 + self.max_queued / self.max_concurrent)

    def environment(self) -> EnvConfig:
        """The environment whose rollouts are served; a `ValueError` where it is not installed."""
        try:
            kind = env_config_type("", self.env_id)
        except ModuleNotFoundError as error:
            raise ValueError(f"--env-id {self.env_id} is not installed here: pip install {self.env_id}") from error
        seat = kind.model_fields["agent"].default
        given = {name: getattr(self.harness, name) for name in self.harness.model_fields_set - {"id"}}
        harness = seat.harness.model_copy(update=given)
        options: dict[str, Any] = {
            "agent": seat.model_copy(update={"harness": harness, "runtime": self.runtime}),
            "sandbox": self.sandbox,
            "gateway": self.gateway,
        }
        if self.include_sub_llm_in_trajectory:
            options["include_sub_llm_in_trajectory"] = True
        return kind(id=self.env_id, taskset=OpenCodeTasksetConfig(id="opencode-env"), **options)

"""`ServerConfig`: every option of `opencode-openenv`."""

import ipaddress
import os
import re
from pathlib import Path
from typing import Any, Self

from pydantic import Field, FiniteFloat, SerializeAsAny, model_validator
from pydantic_config import BaseConfig
from verifiers.v1.runtimes import RuntimeConfig, SubprocessConfig, runtime_is_local

from opencode_env.cli_agent.interception import GatewayConfig
from opencode_env.cli_agent.sandbox import LocalSandboxConfig
from opencode_env.cli_agent.seats import local_seat
from opencode_env.opencode import OpenCodeHarnessConfig
from opencode_env.opencode.env import OpenCodeEnvConfig
from opencode_env.taskset.config import OpenCodeTasksetConfig

TOKEN_VARIABLE = "OPENCODE_OPENENV_TOKEN"


class ServerConfig(BaseConfig):
    """Where the server listens, whom it serves, and where rollouts run."""

    host: str = "127.0.0.1"
    """Address to listen at. Whoever reaches it runs shell commands on your keys: give other addresses with a token."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen at; 0 takes a free one, which the log names."""
    token_file: Path | None = None
    """File that holds the token which callers send (`Authorization: Bearer TOKEN`, or `http://:TOKEN@host:port`); None
    = the environment variable OPENCODE_OPENENV_TOKEN, or no token at all."""
    max_concurrent: int = Field(8, ge=1)
    """Rollouts at once."""
    max_queued: int = Field(64, ge=0)
    """Callers that may wait for a place; further ones are refused."""
    max_rollout_s: FiniteFloat = Field(14_400.0, gt=0)
    """Seconds that one rollout may take at most, by its `agent_timeout_s` and the limits of its commands together."""
    max_request_bytes: int = Field(16 << 20, ge=1024)
    """The largest message of a caller."""
    max_tokenizers: int = Field(16, ge=0)
    """Tokenizers that callers of `token_ids` may name while the server runs; each stays in its memory."""
    shutdown_s: FiniteFloat = Field(30.0, gt=0)
    """Seconds that rollouts get to end and leave nothing after SIGTERM or SIGINT."""

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
        confined = isinstance(self.runtime, SubprocessConfig) and self.sandbox.confine
        if runtime_is_local(self.runtime) and not (confined and self.sandbox.network != "host") and not self.token():
            raise ValueError(
                f'agents on the runtime "{self.runtime.type}" may reach this server over the network, and would run '
                f"rollouts of their own on your keys: set {TOKEN_VARIABLE} or --token-file"
            )
        return self

    def token(self) -> str | None:
        """The token that callers must send; None = none.

        Raises:
            ValueError: the file cannot be read, or holds none that a header may.
        """
        if self.token_file is None:
            token = os.environ.get(TOKEN_VARIABLE)
        else:
            try:
                token = self.token_file.read_text().strip()
            except OSError as error:
                raise ValueError(f"--token-file {self.token_file} cannot be read: {error}") from error
        if token is not None and not re.fullmatch(r"[A-Za-z0-9._~-]{8,}", token):
            raise ValueError("the token must be 8 or more letters, digits and . _ ~ -, which fit into a URL")
        return token

    @property
    def idle_session_s(self) -> float:
        """Seconds after which a session without an answer is given up: none can be as long in waiting and working."""
        return self.max_rollout_s * (2 + self.max_queued / self.max_concurrent)

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def environment(self) -> OpenCodeEnvConfig:
        """The environment whose rollouts are served."""
        agent = local_seat(self.harness).model_copy(update={"runtime": self.runtime})
        return OpenCodeEnvConfig(
            taskset=OpenCodeTasksetConfig(id="opencode-env"), agent=agent, sandbox=self.sandbox, gateway=self.gateway
        )

"""Options of the environment's tool backends (`--env.backends.*`), and their error."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_config import BaseConfig


class BackendsConfig(BaseConfig):
    """Sets which MCP servers the agent gets beside the tools of its task, and how long they may take."""

    file: Path | None = None
    """A YAML or JSON file that describes them (see `AppConfig`); `None`: none."""
    call_timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds for one tool call. A server that has not answered by then has failed, and the rollout with it."""
    start_timeout: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds until a server has started, said its tools and passed its start-up check."""

    @model_validator(mode="after")
    def _read_once(self) -> Self:
        """Find what is wrong with the file before anything has started."""
        if self.file is not None:
            from opencode_env.tool_backends.backend_file import read_backends  # wants a YAML parser

            read_backends(self.file)
        return self

    def require_below(self, tool_timeout: float) -> None:
        """Refuse (`ValueError`) a limit of a call that an agent would never reach which waits `tool_timeout` seconds
        for a tool."""
        if self.file is not None and self.call_timeout >= tool_timeout:
            raise ValueError(
                f"--env.backends.call-timeout {self.call_timeout:g} must be below "
                f"--env.agent.harness.tool-timeout {tool_timeout:g}: the agent would give a call up first, and nobody "
                "would know of the server that hangs"
            )

"""Where a server of this package listens and whom it serves: the options that all of them share."""

import os
import re
from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic_config import BaseConfig
from rollout_sandbox.confined import LocalSandboxConfig
from rollout_sandbox.confined.network import is_loopback
from verifiers.v1.runtimes import RuntimeConfig, SubprocessConfig, runtime_is_local

TOKEN_VARIABLE = "OPENCODE_OPENENV_TOKEN"


class ListenConfig(BaseConfig):
    """Sets where a server listens, and whom it serves."""

    host: str = "127.0.0.1"
    """Address to listen at. Whoever reaches it runs shell commands at your expense: give other addresses with a
    token."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen at; 0 takes a free one, which the log names."""
    token_file: Path | None = None
    """File that holds the token which callers send (`Authorization: Bearer TOKEN`, or `http://:TOKEN@host:port`); None
    = the environment variable OPENCODE_OPENENV_TOKEN, or no token at all."""
    MAX_REQUEST_BYTES: ClassVar[int] = 16 << 20
    """The most that one connection may send at once."""

    def token(self) -> str | None:
        """The token that callers must send; None = none. A `ValueError` where the file cannot be read, or holds none
        that a header may."""
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
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach the server."""
        return is_loopback(self.host)

    def require_agents_out_of_reach(self, runtime: RuntimeConfig, sandbox: LocalSandboxConfig) -> None:
        """Refuse (`ValueError`) to serve without a token where an agent may reach the server over the network."""
        confined = isinstance(runtime, SubprocessConfig) and sandbox.confine and sandbox.network != "host"
        if runtime_is_local(runtime) and not confined and not self.token():
            raise ValueError(
                f'agents on the runtime "{runtime.type}" may reach this server over the network, and would use it at '
                f"your expense: set {TOKEN_VARIABLE} or --token-file"
            )

"""What a user chooses about the confined local sandbox, and what an environment adds to it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, FiniteFloat
from pydantic_config import BaseConfig

from opencode_env.cli_agent.sandbox.relay import IDLE_SECONDS, MAX_CONNECTIONS


class LocalSandboxConfig(BaseConfig):
    """The sandbox that the seat runtime "subprocess" stands for."""

    confine: bool = True
    """Run every rollout in a bubblewrap sandbox. False runs the agent unconfined, as the user who started the
    evaluation: it can then read and change everything that user can. The other fields have no effect then."""
    network: Literal["interception", "host"] = "interception"
    """"interception": only the endpoints that verifiers hands to the rollout (its model endpoint, its tool servers)
    can be reached. "host": the host's whole network, so that the agent can also talk past the record."""
    env_allow: list[str] = []
    """Names of further host environment variables that programs in the sandbox see. Only language, locale and time
    zone are let in by default."""
    python_env: bool = False
    """Let the sandbox read the Python environment of the evaluation (`sys.prefix`), which colocated tool servers
    need. Off by default because installed tasksets, with their answers, are readable there."""
    max_connections: int = Field(MAX_CONNECTIONS, ge=1)
    """Connections at once from the sandbox to one endpoint of verifiers' (the model, a tool server); each costs the
    host descriptors. More are closed at once."""
    idle_timeout: FiniteFloat | None = Field(IDLE_SECONDS, gt=0)
    """Seconds after which such a connection ends when it is silent and waits for no answer; None is never."""


@dataclass(frozen=True)
class Bind:
    """A host file or directory that the sandbox sees at the absolute path `target`."""

    source: Path
    target: str
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links to it, as (absolute path inside, path below `target`). They lie in private directories of the
    sandbox, which hold what a program writes beside them."""
    writable: bool = False
    """Whether programs inside may change it. Its path on the host must be out of their reach."""

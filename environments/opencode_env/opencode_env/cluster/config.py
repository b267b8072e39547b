"""Options of the cluster that plays rollouts (`--env.cluster.*`)."""

import re
from typing import Any, Literal, Self

from pydantic import ByteSize, Field, model_validator
from pydantic_config import BaseConfig


class ClusterConfig(BaseConfig):
    """Sets where rollouts are played: in this process, or by workers on the nodes of a cluster."""

    type: Literal["none", "ray"] = "none"
    """`none`: this process. `ray`: workers on a Ray cluster, which wants the extra `opencode-env[ray]` everywhere."""
    address: str | None = None
    """`HOST:PORT` of the cluster's head; this machine must be a node of it too. It has no default."""
    per_worker: int = Field(32, ge=1)
    """Rollouts that one worker process plays at once."""
    cpus: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Cores that are reserved for a worker."""
    memory: ByteSize | None = None
    """Memory that is reserved for a worker, its sandboxes included (`64GiB`); None: none."""
    resources: dict[str, float] = {}
    """Further resources of a node that are reserved for a worker, by name."""
    labels: dict[str, str] = {}
    """Labels that a worker's node must have, by name."""
    max_workers: int | None = Field(None, ge=1)
    """The most workers at once, over all processes of one environment server; None: as many as rollouts ask for."""
    start_timeout: float = Field(300.0, gt=0, allow_inf_nan=False)
    """Seconds until the cluster has answered, and until a worker is ready."""
    pass_env: list[str] = []
    """Variables of this process that workers get, such as that of the endpoint's key. They go in a call; what is in
    `runtime_env` stands in Ray's dashboard."""
    runtime_env: dict[str, Any] = {}
    """Ray's runtime environment of the workers."""

    @model_validator(mode="after")
    def _an_address_where_there_is_a_cluster(self) -> Self:
        if self.type == "none":
            # A saved configuration has every field, with its default.
            if self != type(self).model_construct():
                raise ValueError("--env.cluster.* means nothing without --env.cluster.type ray")
        elif self.address is None or not re.fullmatch(r"[^\s/:]+:\d{1,5}", self.address):
            raise ValueError(
                "--env.cluster.address must name the head as HOST:PORT, a name or an IPv4 address; "
                "a cluster that is merely near is never joined"
            )
        elif "PYTHONPATH" in self.pass_env:
            raise ValueError(
                "--env.cluster.pass-env sets variables of a worker that runs, for which PYTHONPATH is too late: "
                '--env.cluster.runtime-env \'{"env_vars": {"PYTHONPATH": "…"}}\''
            )
        elif any(name.startswith("RAY_") for name in self.runtime_env.get("env_vars") or ()):
            raise ValueError(
                "--env.cluster.runtime-env sets variables of Ray's own, which a node has to be started with"
            )
        return self

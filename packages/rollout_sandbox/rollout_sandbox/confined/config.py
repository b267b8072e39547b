"""What a user chooses about the confined local sandbox, and what an environment adds to it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ByteSize, Field
from pydantic_config import BaseConfig


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
    own_user: bool = True
    """Started by root, give each sandbox a host user id of its own, because the kernel counts processes, descriptors
    in flight, inotify instances and namespaces by user. False, and any other user, shares the starting user's id."""
    first_user: Annotated[int, Field(ge=1, lt=2**31)] = 1_900_000_000
    """Where the 65,536 host user ids begin that sandboxes get, two for each that lives at the same time on this
    machine. In a container whose ids are a part of the host's, name one of that part."""
    max_processes: Annotated[int, Field(ge=16)] | None = 1024
    """Processes and threads of the agent's at once; None means no limit, as in an evaluation started by root without
    `own_user`."""
    max_memory: Annotated[ByteSize, Field(ge=64 << 20)] | None = ByteSize(8 << 30)
    """Memory of the agent's processes together (`512MiB`, `8GiB`), with their page cache and shared memory where the
    evaluation may make control groups (root, or a delegated one), else their resident memory, looked at four times a
    second. Beyond it the largest process is killed. None: no limit."""
    max_disk: Annotated[ByteSize, Field(ge=1 << 20)] | None = ByteSize(16 << 30)
    """Disk space of all the sandbox's writable files, at least 4 KiB each, and size of each. It is looked at twice a
    second; beyond it whatever the agent's commands have started is killed, and beyond half as much again the commands
    too. None: no limit."""
    max_open_files: Annotated[int, Field(ge=64)] | None = 8192
    """Open files of one process; also bounds descriptors in flight. At most half of what the evaluation itself may
    open, so that it and the sandbox's own process 1 keep the other half. None: no limit."""


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

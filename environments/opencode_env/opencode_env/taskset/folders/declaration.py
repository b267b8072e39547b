"""What a `task.toml` declares, as far as it is honoured here; what cannot be honoured is refused by its name.

The format is Harbor's (schema 1.x, read in its release 0.25). Unknown keys are ignored, as Harbor ignores them.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.folders.task_folder import Healthcheck

CONFIG_FILE = "task.toml"

_TEMPLATE = re.compile(r"\$\{(?P<name>[^}:]+)(?::-(?P<default>.*))?\}", re.DOTALL)
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMG])B?", re.IGNORECASE)
_MB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}


class Network(BaseModel, frozen=True, extra="ignore"):
    """A section that may bound the network."""

    network_mode: str | None = None
    allowed_hosts: list[str] = []
    allow_internet: bool | None = None

    @property
    def allowed(self) -> list[str] | None:
        """What may be reached: all, or these hosts; None is not said."""
        if self.network_mode is None:
            return [] if self.allow_internet is False else None
        return {"public": ["*"], "no-network": []}.get(self.network_mode, self.allowed_hosts)


class Environment(Network):
    """`[environment]`: the sandbox that the agent works in; `[verifier.environment]` is one, too."""

    docker_image: str | None = None
    build_timeout_sec: float = Field(600.0, gt=0, allow_inf_nan=False)
    workdir: str | None = None
    cpus: float | None = Field(None, gt=0, allow_inf_nan=False)
    memory_mb: float | None = Field(None, gt=0, allow_inf_nan=False)
    storage_mb: float | None = Field(None, gt=0, allow_inf_nan=False)
    gpus: int | None = None
    gpu_types: list[str] | None = None
    env: dict[str, str] = {}
    healthcheck: Healthcheck | None = None
    os: str = "linux"
    mcp_servers: list[Any] = []
    skills_dir: str | None = None
    tpu: Any = None

    @model_validator(mode="before")
    @classmethod
    def _older_sizes(cls, given: Any) -> Any:
        """`memory = "2G"` as Terminal-Bench 2 writes it."""
        if not isinstance(given, dict):
            return given
        for name in ("memory", "storage"):
            if isinstance(size := given.get(name), str):
                if (found := _SIZE.fullmatch(size.strip())) is None:
                    raise ValueError(f"{name} = {size!r} is not a size such as 512M or 2G")
                given = {f"{name}_mb": float(found["number"]) * _MB[found["unit"].upper()], **given}
        return given

    def unsupported(self) -> list[str]:
        """The keys that are set and cannot be honoured."""
        given = {"mcp_servers": self.mcp_servers, "skills_dir": self.skills_dir, "tpu": self.tpu}
        return [name for name, value in given.items() if value] + ([f'os = "{self.os}"'] if self.os != "linux" else [])


class Artifact(BaseModel, frozen=True, extra="ignore"):
    """One path that travels to a verifier of its own."""

    source: str
    service: str | None = None
    exclude: list[str] = []


class Agent(Network):
    """`[agent]`."""

    timeout_sec: float | None = Field(None, gt=0, allow_inf_nan=False)
    user: str | int | None = None


class Verifier(Network):
    """`[verifier]`."""

    timeout_sec: float = Field(900.0, gt=0, allow_inf_nan=False)
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: str | None = None
    environment: Environment | None = None
    collect: list[Any] = []

    @property
    def separate(self) -> bool:
        """Whether it has a sandbox of its own."""
        return (self.environment_mode or ("separate" if self.environment else "shared")) == "separate"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.environment_mode not in (None, "shared", "separate"):
            raise ValueError(f'environment_mode is "shared" or "separate", not {self.environment_mode!r}')
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError('environment_mode = "shared" and a [verifier.environment] contradict each other')
        return self


class Declaration(BaseModel, frozen=True, extra="ignore"):
    """A whole `task.toml`."""

    metadata: dict[str, Any] = {}
    task: dict[str, Any] = {}
    environment: Environment = Environment()
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    artifacts: list[str | Artifact] = []
    steps: list[Any] = []


def read_declaration(folder: Path) -> Declaration:
    """The declaration of a task directory.

    Raises:
        DatasetError: it is not valid TOML, of wrong types, or asks for what there is not here.
    """
    path = folder / CONFIG_FILE
    try:
        declared = Declaration.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        raise DatasetError(f"{path}: {problems}") from error
    if refused := _refused(declared):
        raise DatasetError(f"{path}: {'; '.join(refused)}: not supported; leave this task out of the folder")
    return declared


def _refused(declared: Declaration) -> list[str]:
    verifier = declared.verifier
    found = [f"[environment] {name}" for name in declared.environment.unsupported()]
    if verifier.environment is not None:
        found += [f"[verifier.environment] {name}" for name in verifier.environment.unsupported()]
    if declared.steps:
        found.append("[[steps]]")
    if verifier.collect:
        found.append("[[verifier.collect]]")
    if verifier.user not in (None, "root", 0, "0"):
        found.append(f"[verifier] user = {verifier.user!r}")
    for entry in declared.artifacts:
        if isinstance(entry, Artifact) and (entry.exclude or entry.service not in (None, "main")):
            found.append(f"artifact {entry.source!r} with exclude or service")
    return found


def literal_variables(path: Path, section: str, given: dict[str, str]) -> dict[str, str]:
    """The variables of a section, in which `${NAME:-default}` is its default.

    Raises:
        DatasetError: one asks for a variable of this machine, where keys are.
    """
    found = {}
    for name, value in given.items():
        template = _TEMPLATE.fullmatch(value)
        if template is not None and template["default"] is None:
            raise DatasetError(
                f"{path / CONFIG_FILE}: [{section}] {name} = {value!r} asks for a variable of this machine, and none "
                "of them enters a sandbox: write the value itself"
            )
        found[name] = value if template is None else template["default"]
    return found

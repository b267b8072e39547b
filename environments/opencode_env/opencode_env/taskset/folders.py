"""Makes rows of a folder of task directories.

What of a task directory is hidden from the agent (`tests/`, `solution/`) is never in what is built or put
into its sandbox before it scores; `solution/` is not read at all. No path leaves the task directory.
"""

import hashlib
import logging
import os
import re
import tomllib
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Self

import verifiers.v1 as vf
from opencode_rubrics.task_tests import StagedTests, VerifierSandbox
from pydantic import BaseModel, Field, ValidationError, model_validator
from rollout_sandbox.compat import network_fields
from rollout_sandbox.toolbox.files import pack_directory

from opencode_env.errors import DatasetError
from opencode_env.taskset.cells import json_safe
from opencode_env.taskset.row import Row
from opencode_env.taskset.task_folder import Healthcheck, ImageBuild, TaskFolder

CONFIG_FILE = "task.toml"

_TEMPLATE = re.compile(r"\$\{(?P<name>[^}:]+)(?::-(?P<default>.*))?\}", re.DOTALL)
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMG])B?", re.IGNORECASE)
_MB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}


class NetworkSection(BaseModel, frozen=True, extra="ignore"):
    """A section that may bound the network."""

    network_mode: str | None = None
    allowed_hosts: list[str] = []
    allow_internet: bool | None = None

    @property
    def allowed(self) -> list[str] | None:
        """Return what may be reached: all, or these hosts; None is not said."""
        if self.network_mode is None:
            return [] if self.allow_internet is False else None
        return {"public": ["*"], "no-network": []}.get(self.network_mode, self.allowed_hosts)


class EnvironmentSection(NetworkSection):
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
        given = {"mcp_servers": self.mcp_servers, "skills_dir": self.skills_dir, "tpu": self.tpu}
        return [name for name, value in given.items() if value] + ([f'os = "{self.os}"'] if self.os != "linux" else [])


class Artifact(BaseModel, frozen=True, extra="ignore"):
    """One path that travels to a verifier of its own."""

    source: str
    service: str | None = None
    exclude: list[str] = []


class AgentSection(NetworkSection):
    """`[agent]`."""

    timeout_sec: float | None = Field(None, gt=0, allow_inf_nan=False)
    user: str | int | None = None


class VerifierSection(NetworkSection):
    """`[verifier]`."""

    timeout_sec: float = Field(900.0, gt=0, allow_inf_nan=False)
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: str | None = None
    environment: EnvironmentSection | None = None
    collect: list[Any] = []

    @property
    def separate(self) -> bool:
        return (self.environment_mode or ("separate" if self.environment else "shared")) == "separate"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.environment_mode not in (None, "shared", "separate"):
            raise ValueError(f'environment_mode is "shared" or "separate", not {self.environment_mode!r}')
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError('environment_mode = "shared" and a [verifier.environment] contradict each other')
        return self


class TaskToml(BaseModel, frozen=True, extra="ignore"):
    """A whole `task.toml`."""

    metadata: dict[str, Any] = {}
    task: dict[str, Any] = {}
    environment: EnvironmentSection = EnvironmentSection()
    agent: AgentSection = AgentSection()
    verifier: VerifierSection = VerifierSection()
    artifacts: list[str | Artifact] = []
    steps: list[Any] = []


def read_declaration(folder: Path) -> TaskToml:
    path = folder / CONFIG_FILE
    try:
        declared = TaskToml.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        raise DatasetError(f"{path}: {problems}") from error
    if refused := _refused(declared):
        raise DatasetError(f"{path}: {'; '.join(refused)}: not supported; leave this task out of the folder")
    return declared


def _refused(declared: TaskToml) -> list[str]:
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
    """The variables of a section, in which `${NAME:-default}` is its default."""
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


DOCKERFILE = "Dockerfile"
_COMPOSE = "docker-compose.yaml"
"""The one name that Harbor reads; a Compose file of another name is data."""


def refuse_compose(directory: Path) -> None:
    for place in ("environment", "tests"):
        if os.path.lexists(directory / place / _COMPOSE):
            raise DatasetError(
                f"{directory}: {place}/{_COMPOSE}: tasks of several containers (Compose) are not supported: leave this "
                "task out of the folder, or run it with verifiers' own taskset `harbor`"
            )


logger = logging.getLogger("verifiers.v1.opencode_env.taskset")

BUILT_IMAGE = "localhost/opencode-task"
"""Name of the images that are built from task directories; the tag is a hash of what they are built from."""

SCRIPT_FILE = "tests/test.sh"
_WORKDIR = re.compile(r"^\s*WORKDIR\s+(?P<path>\S+)\s*$", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(r"^\s*FROM\s", re.IGNORECASE | re.MULTILINE)
_FETCHES = re.compile(r"\b(?:curl|wget|apt-get|apt|apk|uvx|npm|npx|pip3?|uv)\s+(?:-|\w|https?:)")


def task_directories(folder: Path) -> list[Path]:
    """The task directories at `folder`, or up to two levels below it; none if it is not a folder of them."""
    if (folder / CONFIG_FILE).is_file():
        return [folder]
    found = [path.parent for pattern in ("*", "*/*") for path in folder.glob(f"{pattern}/{CONFIG_FILE}")]
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def read_folder(directory: Path, root: Path, number: int) -> Row:
    """The row of one task directory; its id is the directory's path below `root`. A `DatasetError` where something is
    missing, outside of the directory, or cannot be honoured."""
    name = directory.name if directory == root else directory.relative_to(root).as_posix()
    _inside(directory, CONFIG_FILE)
    declared = read_declaration(directory)
    refuse_compose(directory)
    try:
        return _row(directory, name, number, declared)
    except (ValueError, OSError) as error:
        raise error if isinstance(error, DatasetError) else DatasetError(f"{directory}: {error}") from error


def _row(directory: Path, name: str, number: int, declared: TaskToml) -> Row:
    environment, image = declared.environment, declared.environment.docker_image
    definition, build = _inside(directory, "environment"), None
    dockerfile = _inside(directory, f"environment/{DOCKERFILE}")
    if image is None and dockerfile.is_file():
        context = pack_directory(definition)
        image = f"{BUILT_IMAGE}:{hashlib.sha256(context.encode()).hexdigest()[:16]}"
        build = ImageBuild(context=context, timeout=environment.build_timeout_sec)
    files = None
    if definition.is_dir() and not dockerfile.is_file() and any(definition.iterdir()):
        files = pack_directory(definition)
    variables = literal_variables(directory, "environment.env", environment.env)
    folder = TaskFolder(files=files, build=build, env=variables, healthcheck=environment.healthcheck)
    tests = _tests(directory, declared)
    if image is None:
        _warn_of_fetching(directory / SCRIPT_FILE)
    said = {**declared.task, **declared.metadata}
    values = {
        "id": name,
        "question": _inside(directory, "instruction.md").read_text(encoding="utf-8").strip(),
        "image": image,
        "workdir": environment.workdir or _declared_workdir(dockerfile),
        "agent_timeout": declared.agent.timeout_sec,
        **{name: json_safe(value) for name, value in said.items() if name not in _OWN},
    }
    user, allowed = declared.agent.user, declared.agent.allowed
    allowed = environment.allowed if allowed is None else allowed
    given = {
        "folder": folder,
        "tests": tests,
        "name": declared.task.get("name"),
        "agent_user": None if user is None else str(user),
        "resources": _resources(declared),
        **({} if allowed is None or "*" in allowed else network_fields(allowed)),
    }
    return Row(str(directory), number, values, given)


_OWN = {"id", "question", "image", "workdir", "agent_timeout", "answer", "setup", "verify", "rubric", "name"}
"""Names of columns that metadata may not have."""


def _tests(directory: Path, declared: TaskToml) -> StagedTests:
    verifier, folder = declared.verifier, _inside(directory, "tests")
    box = None
    bundled = verifier.environment is not None and verifier.environment.docker_image is not None
    if verifier.separate:
        own = verifier.environment or declared.environment
        if not bundled and (folder / DOCKERFILE).is_file():
            raise DatasetError(
                f"{directory}: tests/{DOCKERFILE} is not built: build it and name the image as docker_image of "
                f"[verifier.environment] in {CONFIG_FILE}"
            )
        if own.healthcheck is not None and verifier.environment is not None:
            raise DatasetError(f"{directory}: [verifier.environment.healthcheck] is not supported")
        box = VerifierSandbox(
            image=own.docker_image if verifier.environment else None,
            workdir=own.workdir if verifier.environment else None,
            env=literal_variables(directory, "verifier.environment.env", own.env),
            artifacts=[entry if isinstance(entry, str) else entry.source for entry in declared.artifacts],
        )
    if not bundled and not (folder / "test.sh").is_file():
        raise DatasetError(f"{directory}: there is no {SCRIPT_FILE}, which scores the task")
    return StagedTests(
        archive=None if bundled else pack_directory(folder),
        timeout=verifier.timeout_sec,
        env=literal_variables(directory, "verifier.env", verifier.env),
        box=box,
    )


def _inside(directory: Path, name: str) -> Path:
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise DatasetError(f"{directory}: {name} is a link that leads out of the task directory")
    return path


def _declared_workdir(dockerfile: Path) -> str | None:
    """The work directory of the image that a Dockerfile makes, as far as the file itself says it."""
    if not dockerfile.is_file():
        return None
    last_stage = _FROM.split(dockerfile.read_text(encoding="utf-8", errors="replace"))[-1]
    path = PurePosixPath("/")
    for found in _WORKDIR.finditer(last_stage):
        path = path / found["path"].strip("\"'")
    return None if path == PurePosixPath("/") or "$" in str(path) else str(path)


def _resources(declared: TaskToml) -> vf.TaskResources:
    environment, gpu = declared.environment, None
    if environment.gpus:
        gpu = f"{environment.gpu_types[0]}:{environment.gpus}" if environment.gpu_types else str(environment.gpus)
    sizes = (environment.memory_mb, environment.storage_mb)
    memory, disk = (None if size is None else size / 1024 for size in sizes)
    return vf.TaskResources(cpu=environment.cpus, memory=memory, disk=disk, gpu=gpu)


@cache
def _warn_of_fetching(script: Path) -> None:
    if script.is_file() and _FETCHES.search(script.read_text(encoding="utf-8", errors="replace")):
        logger.warning(
            "%s seems to fetch programs, and its task has no image: in the confined local sandbox there is no network "
            "to fetch them from, and tests that then write a 0 are believed. Use what this machine has, or an image",
            script,
        )

"""What a file of tool backends may say, and what its values become.

The fields of `BackendServerConfig`, `RemoteApiConfig` and `AppConfig` of eval-protocol 0.0.3, so that its files load as
they are, and two more kinds of servers. Only types and unknown keys are checked here; what depends on another field
is in `backend_file`, which can name its line.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

VARIABLE = re.compile(r"\$\{(\w+)\}")
"""Where a value takes a variable of the environment."""
Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


Mode = Literal["local_docker", "remote_http_api", "local_program", "remote_url"]
"""Where a server comes from: a container on this machine, which podman runs; an instance that is made, and deleted,
with requests to an HTTP API; a program on this machine that speaks MCP on its stdin and stdout; a server that runs
already, elsewhere."""


class Authentication(_Strict):
    """Tells how requests prove who they are from. `${NAME}` in a value is that environment variable."""

    auth_type: Literal["none", "bearer_token", "custom_header"] = "none"
    auth_details: dict[str, str] | None = None
    """`{token: …}` for `bearer_token`; `{header_name: …, header_value: …}` for `custom_header`."""

    def headers(self) -> dict[str, str]:
        details = expanded(self.auth_details or {})
        if self.auth_type == "bearer_token":
            return {"Authorization": f"Bearer {details['token']}"}
        if self.auth_type == "custom_header":
            return {details["header_name"]: details["header_value"]}
        return {}


class RemoteApiConfig(Authentication):
    """An API that makes instances."""

    base_url: Text
    create_instance_endpoint: Text = "/instances"
    """POST; answers with a list of `{remote_instance_id, mcp_endpoint_url}`."""
    delete_instance_endpoint_template: Text = "/instances/{remote_instance_id}"
    """DELETE removes the instance."""
    call_tool_endpoint_template: Text | None = None
    """POST of `{tool_name, arguments}`; `None`: tools are called at the instance's `mcp_endpoint_url`."""


class StartupCheck(_Strict):
    """A tool call that must succeed before a server is used."""

    tool_name: Text
    """`ping` and `list_tools`, where the server has no such tool, mean the requests of that name."""
    arguments: dict[str, Any] = Field(default_factory=dict)


class VolumeMount(_Strict):
    """Tells where a host path is seen in a container."""

    bind: Text
    mode: Literal["rw", "ro"] = "rw"


class BackendServerConfig(Authentication):
    """One MCP server."""

    backend_name_ref: Text
    """Its name, with which the names of its tools begin."""
    backend_type: Literal["filesystem", "duckdb", "memory", "everything", "fetch", "time"] | None = None
    """What it is; a `filesystem` sees its template data at `/data` unless the file says where."""
    orchestration_mode: Mode
    instance_scoping: Literal["session", "shared_global"] = "session"
    """One instance for every rollout, or one for all rollouts of a process."""
    mcp_transport: Literal["http", "stdio"] = "http"
    """How a container speaks MCP: at `/mcp` of its port, or on its stdin and stdout."""

    docker_image: Text | None = None
    container_port: int | None = Field(None, ge=1, le=65535)
    template_data_path_host: Text | None = None
    """A directory of which every instance gets a copy."""
    container_template_data_path: Text | None = None
    """Where a container sees its copy."""
    docker_run_args: list[str] | None = None
    """Further options of `docker run`."""
    startup_check_mcp_tool: StartupCheck | None = None
    container_command: list[str] | None = None
    container_volumes: dict[str, VolumeMount] | None = None
    """Where a container sees paths of this machine, by host path."""

    remote_api_config_ref: Text | None = None
    remote_api_config_inline: RemoteApiConfig | None = None
    remote_resource_type_identifier: Text | None = None

    command: list[Text] | None = None
    """The program of a `local_program` and its arguments."""
    reads: list[Text] | None = None
    """Files and directories of this machine that a `local_program` sees, read-only, beyond the system's, this
    Python's and those that its command names. Whatever it sees, its tools may show the agent."""
    env: dict[str, str] | None = None
    """The variables of a `local_program`, beyond PATH and a HOME of its own. `${NAME}` in a value is that variable of
    the environment, none of which it has otherwise."""
    url: Text | None = None
    """The whole URL of a `remote_url`."""


class RemoteApiDefaults(_Strict):
    """Limits of the requests to every API."""

    timeout: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Seconds for each read and write."""
    connect_timeout: float = Field(5.0, gt=0, allow_inf_nan=False)
    """Seconds until a connection stands."""


class AppConfig(_Strict):
    """The whole file."""

    backends: list[BackendServerConfig] = Field(default_factory=list)
    global_remote_apis: dict[str, RemoteApiConfig] | None = None
    log_level: str = "INFO"
    """Level of this package's own messages."""
    global_docker_options: dict[str, Any] | None = None
    """Options of every container, named as Docker's Python client names them (see `option_words`)."""
    global_remote_api_defaults: RemoteApiDefaults | None = None


@dataclass(frozen=True)
class BackendFile:
    """A file that can be used."""

    config: AppConfig
    directory: Path
    """What its relative paths are relative to."""


_IGNORED = ("auto_remove", "detach", "name", "remove", "stdin_open", "template_commit_delay_s")
"""Options that a file may hold and that mean nothing: every container has its own name, and is always removed."""
_PLAIN = (
    *("cap_add", "cap_drop", "cpu_period", "cpu_quota", "cpu_shares", "cpuset_cpus", "dns", "domainname", "entrypoint"),
    *("group_add", "hostname", "init", "network", "pids_limit", "platform", "privileged", "read_only", "security_opt"),
    *("shm_size", "tmpfs", "user"),
)
_FLAGS = {name: f"--{name.replace('_', '-')}" for name in _PLAIN} | {
    "devices": "--device",
    "environment": "--env",
    "extra_hosts": "--add-host",
    "ipc_mode": "--ipc",
    "labels": "--label",
    "mem_limit": "--memory",
    "memswap_limit": "--memory-swap",
    "nano_cpus": "--cpus",
    "network_mode": "--network",
    "sysctls": "--sysctl",
    "userns_mode": "--userns",
    "working_dir": "--workdir",
}
"""Options of containers as Docker's Python client names them, and those of the command line."""
_PAIRS = {"environment": "=", "labels": "=", "sysctls": "=", "extra_hosts": ":", "tmpfs": ":"}
"""Those that may be a mapping, and what stands between key and value on the command line."""
_LISTS = {*_PAIRS, "cap_add", "cap_drop", "devices", "dns", "group_add", "security_opt"}
_SWITCHES = {"init", "privileged", "read_only"}


def wrong_options(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The options of containers that cannot be carried out: each one's name, and what to change."""
    for name in options.keys() - _IGNORED:
        value = options[name]
        if name not in _FLAGS:
            yield name, f"is not an option that can be given to a container; known are {', '.join(sorted(_FLAGS))}"
        elif name == "nano_cpus" and not isinstance(value, int | float):
            yield name, "must be a number"
        elif (isinstance(value, list) and name not in _LISTS) or (isinstance(value, dict) and name not in _PAIRS):
            yield name, "must be a single value"


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Arguments of `podman run` for options of containers."""
    words = []
    for name, value in options.items():
        if name in _IGNORED or value is None:
            continue
        if name in _SWITCHES:
            words += [_FLAGS[name]] if value else []
        else:
            words += [word for one in _values(name, value) for word in (_FLAGS[name], str(one))]
    return words


def _values(name: str, value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [f"{key}{_PAIRS[name]}{one}" for key, one in value.items()]
    if name == "nano_cpus":
        return [f"{value / 1e9:g}"]
    return value if isinstance(value, list) else [value]


def tool_prefix(name: str) -> str:
    """The name with what a tool's name cannot hold replaced."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def host_path(given: str, base: Path) -> Path:
    """A path of the file, which is in the directory `base`, on this machine."""
    return base / os.path.expanduser(given)


def expanded(values: Mapping[str, str]) -> dict[str, str]:
    return {name: VARIABLE.sub(lambda found: os.environ[found.group(1)], value) for name, value in values.items()}


def is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        leads = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return leads and not re.search(r"\s|\$\{", url)
    except ValueError:  # not a port; its text may be a password
        return False

"""What is wrong in a file of tool backends beyond types and unknown keys."""

import logging
import re
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from opencode_env.tool_backends.authentication import expanded, missing_details, wrong_variables
from opencode_env.tool_backends.description import (
    AppConfig,
    BackendServerConfig,
    Orchestration,
    RemoteApiConfig,
    host_path,
    tool_prefix,
)
from opencode_env.tool_backends.docker_options import wrong_options
from opencode_env.tool_backends.program_view import cannot_run, search_path

Place = tuple[int | str, ...]
"""The way to a value in a file: keys of mappings and positions in lists."""
_Found = Iterator[tuple[Place, str]]

_NO_URL = (
    "must begin with http:// or https://, name a host, and hold no space and no ${NAME}, which is replaced in env and "
    "auth_details only"
)
_GIVEN = re.compile(r"--(name|detach|rm|pidfile|cidfile|publish|replace|interactive|tty)\b|-[a-zA-Z]*[dpPit]\b")
"""Options of `docker run` that the environment sets itself."""


def found_in(config: AppConfig, directory: Path) -> _Found:
    """Each thing wrong, with its place; paths of the file are relative to its `directory`."""
    if config.log_level.upper() not in logging.getLevelNamesMapping():
        known = ", ".join(logging.getLevelNamesMapping())
        yield ("log_level",), f"{config.log_level!r} is not a level of logging; known are {known}"
    for name, message in wrong_options(config.global_docker_options or {}):
        yield ("global_docker_options", name), message
    for name, api in (config.global_remote_apis or {}).items():
        yield from _api(api, ("global_remote_apis", name))
    yield from _names(config)
    for index, backend in enumerate(config.backends):
        for place, message in _backend(backend, config, directory):
            yield ("backends", index, *place), message


def _names(config: AppConfig) -> _Found:
    first: dict[str, int] = {}
    for index, backend in enumerate(config.backends):
        earlier = first.setdefault(tool_prefix(backend.backend_name_ref), index)
        if earlier != index:
            other = config.backends[earlier].backend_name_ref
            told = f"is too like {other!r}, the name of backends[{earlier}], for tools to tell them apart; rename one"
            yield ("backends", index, "backend_name_ref"), told


def _backend(backend: BackendServerConfig, config: AppConfig, directory: Path) -> _Found:
    mode = backend.orchestration_mode
    for other, (_, fields) in _KINDS.items():
        for field in fields:
            if other is not mode and getattr(backend, field) is not None:
                told = f"means nothing with orchestration_mode {mode.value!r}; take it away, or change the mode"
                yield (field,), told
    yield from _KINDS[mode][0](backend, config, directory)
    yield from _template(backend, directory)


def _container(backend: BackendServerConfig, config: AppConfig, directory: Path) -> _Found:
    if backend.docker_image is None:
        yield (), "has no docker_image, and orchestration_mode 'local_docker' needs one"
    if backend.mcp_transport == "http" and backend.container_port is None:
        yield (), "has no container_port: name the port at which the server listens, or set mcp_transport: stdio"
    for index, word in enumerate(backend.docker_run_args or []):
        if (found := _GIVEN.match(word)) is not None:
            yield ("docker_run_args", index), f"{found.group()} is set by the environment; take it away"
    for host in backend.container_volumes or {}:
        if not host_path(host, directory).exists():
            yield ("container_volumes", host), f"{host_path(host, directory)} does not exist"


def _instance(backend: BackendServerConfig, config: AppConfig, directory: Path) -> _Found:
    reference, inline = backend.remote_api_config_ref, backend.remote_api_config_inline
    if backend.remote_resource_type_identifier is None:
        yield (), "has no remote_resource_type_identifier: name what the API shall make"
    if reference is None and inline is None:
        yield (), "names no API: give remote_api_config_ref or remote_api_config_inline"
    elif reference is not None and inline is not None:
        yield ("remote_api_config_ref",), "stands beside a remote_api_config_inline; give one of them"
    elif reference is not None and reference not in (config.global_remote_apis or {}):
        known = ", ".join(sorted(config.global_remote_apis or {})) or "none"
        yield ("remote_api_config_ref",), f"{reference!r} leads nowhere; global_remote_apis has {known}"
    if inline is not None:
        yield from _api(inline, ("remote_api_config_inline",))
    if backend.mcp_transport != "http":
        yield ("mcp_transport",), "must be http: an instance elsewhere is reached by its URL"


def _program(backend: BackendServerConfig, config: AppConfig, directory: Path) -> _Found:
    reads = [str(host_path(path, directory)) for path in backend.reads or []]
    wrong = list(wrong_variables(backend.env or {}))
    yield from ((("env",), message) for message in wrong)
    if not backend.command:
        yield (), "has no command: give the program and its arguments as a list"
    elif not wrong:
        given = backend.template_data_path_host
        template = None if given is None else host_path(given, directory)
        search = search_path(expanded(backend.env or {}))
        yield from ((("command", 0), message) for message in cannot_run(backend.command, search, reads, template))
    for index, path in enumerate(reads):
        if not Path(path).exists():
            yield ("reads", index), f"{path} does not exist"


def _url(backend: BackendServerConfig, config: AppConfig, directory: Path) -> _Found:
    if backend.url is None:
        yield (), "has no url: give the whole URL of the server"
    elif not is_http(backend.url):
        yield ("url",), _NO_URL
    for field, message in missing_details(backend):
        yield (field,), message


_KINDS: dict[Orchestration, tuple[Callable[[BackendServerConfig, AppConfig, Path], _Found], tuple[str, ...]]] = {
    Orchestration.LOCAL_DOCKER: (
        _container,
        (
            "docker_image",
            "container_port",
            "container_template_data_path",
            "docker_run_args",
            "container_command",
            "container_volumes",
        ),
    ),
    Orchestration.REMOTE_HTTP_API: (
        _instance,
        ("remote_api_config_ref", "remote_api_config_inline", "remote_resource_type_identifier"),
    ),
    Orchestration.LOCAL_PROGRAM: (_program, ("command", "env", "reads")),
    Orchestration.REMOTE_URL: (_url, ("url", "auth_details")),
}
"""The check of each kind, and the fields that no other kind may have."""


def _template(backend: BackendServerConfig, directory: Path) -> _Found:
    template = backend.template_data_path_host
    if template is None:
        return
    if backend.orchestration_mode in (Orchestration.REMOTE_HTTP_API, Orchestration.REMOTE_URL):
        yield ("template_data_path_host",), "is of this machine, and the server is not"
    elif not host_path(template, directory).is_dir():
        yield ("template_data_path_host",), f"{host_path(template, directory)} is not a directory"
    elif (
        backend.orchestration_mode is Orchestration.LOCAL_DOCKER
        and backend.container_template_data_path is None
        and backend.backend_type != "filesystem"
    ):
        yield ("template_data_path_host",), "needs container_template_data_path: where the container sees its copy"


def _api(api: RemoteApiConfig, place: Place) -> _Found:
    if not is_http(api.base_url):
        yield (*place, "base_url"), _NO_URL
    for field, message in missing_details(api):
        yield (*place, field), message
    for field in ("delete_instance_endpoint_template", "call_tool_endpoint_template"):
        template = getattr(api, field)
        if template is not None and _placeholders(template) != {"remote_instance_id"}:
            yield (*place, field), "must hold {remote_instance_id}, and no other word in braces"


def _placeholders(template: str) -> set[str | None]:
    try:
        return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        return {None}


def is_http(url: str) -> bool:
    """Whether requests can be sent there."""
    try:
        parts = urlsplit(url)
        leads = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return leads and not re.search(r"\s|\$\{", url)
    except ValueError:  # not a port; its text may be a password
        return False

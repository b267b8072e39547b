"""Reads a file of tool backends, and says of everything wrong in it in which line it stands.

What a kind of server is stands behind `_KINDS`: its check, the fields that are its own, and how one is started.
"""

import logging
import os
import re
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from opencode_env.errors import BackendFileError
from opencode_env.tool_backends.connection import BackendServer
from opencode_env.tool_backends.description import (
    VARIABLE,
    AppConfig,
    Authentication,
    BackendFile,
    BackendServerConfig,
    Mode,
    RemoteApiConfig,
    expanded,
    host_path,
    is_http,
    tool_prefix,
    wrong_options,
)
from opencode_env.tool_backends.local import container, program
from opencode_env.tool_backends.program_view import cannot_run, search_path
from opencode_env.tool_backends.remote import remote_instance, remote_url

_Place = tuple[int | str, ...]
"""The way to a value in a file: keys of mappings and positions in lists."""
_Found = Iterator[tuple[_Place, str]]
"""Places and what is wrong there."""


@dataclass(frozen=True)
class FileProblem:
    """One thing wrong in a file: the line, the place in words, and what to change."""

    line: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, {self.place}: {self.message}"


class BackendDocument:
    """The content of a file, and where each part of it stands."""

    def __init__(self, path: Path) -> None:
        try:
            loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
            self._root = loader.get_single_node()
            self.doubled = list(_doubled_keys(self._root))
            """Keys that a mapping says twice; `content` has the last."""
            self.content: Any = None if self._root is None else loader.construct_document(self._root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = 1 if mark is None else mark.line + 1
            raise BackendFileError(path, [FileProblem(line, "the text", f"is not YAML: {error.problem}")]) from error
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise BackendFileError(path, [FileProblem(1, "the text", f"cannot be read: {error}")]) from error

    def problem(self, place: _Place, message: str) -> FileProblem:
        """Return what is wrong at a place, as Python would write it, `backends[0].docker_image`; of what is missing,
        the line is that of what it is missing from."""
        words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        node, line = self._root, 1 if self._root is None else self._root.start_mark.line + 1
        for step in place:
            if (found := _step(node, step)) is None:
                break
            node, line = found
        return FileProblem(line, words.removeprefix(".") or "the file", message)


def _step(node: yaml.Node | None, step: int | str) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step].start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return value, key.start_mark.line + 1
    return None


def _doubled_keys(node: yaml.Node | None) -> Iterator[FileProblem]:
    """Keys that a mapping says twice; YAML would take the last without a word."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _doubled_keys(item)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            if key.value in lines:
                yield FileProblem(line, key.value, f"stands in line {lines[key.value]} already; take one of them away")
            lines[key.value] = line
        yield from _doubled_keys(value)


_OTHER_FORMS = (("mcpServers",), ("mcp_servers",), ("servers",), ("mcp",))
"""Under what other programs' files have their servers."""
_OTHER_FORM = (
    "is how other programs name their servers; here each is an entry of backends: {backend_name_ref: NAME, "
    "orchestration_mode: local_program, command: [PROGRAM, ARGUMENT, …], env: {…}}, or with a URL {backend_name_ref: "
    "NAME, orchestration_mode: remote_url, url: …, auth_type: bearer_token, auth_details: {token: …}}"
)


def read_backends(path: Path) -> BackendFile:
    """Read a YAML or JSON file; where its values are of the right types, it is also looked whether they go together. A
    `BackendFileError` names each line that is wrong."""
    document = BackendDocument(path)
    directory = path.resolve().parent
    wrong: list[tuple[_Place, str]]
    try:
        config = AppConfig.model_validate({} if document.content is None else document.content)
        wrong = list(_found_in(config, directory))
    except ValidationError as error:
        wrong = [(one["loc"], _message(one["type"], one["msg"], one["loc"])) for one in error.errors(include_url=False)]
    problems = [*document.doubled, *(document.problem(place, message) for place, message in wrong)]
    if problems:
        raise BackendFileError(path, sorted(problems, key=lambda problem: problem.line))
    return BackendFile(config, directory)


def _message(kind: str, message: str, place: _Place) -> str:
    if kind == "extra_forbidden" and place in _OTHER_FORMS:
        return _OTHER_FORM
    if kind == "extra_forbidden":
        return "is not a key that is known here; take it away, or look for a misspelling"
    if kind == "missing":
        return "is missing"
    return message[:1].lower() + message[1:]


_NO_URL = (
    "must begin with http:// or https://, name a host, and hold no space and no ${NAME}, which is replaced in env and "
    "auth_details only"
)
_GIVEN = re.compile(r"--(name|detach|rm|pidfile|cidfile|publish|replace|interactive|tty)\b|-[a-zA-Z]*[dpPit]\b")
"""Options of `docker run` that the environment sets itself."""


def _found_in(config: AppConfig, directory: Path) -> _Found:
    """Each thing wrong, with its place; paths of the file are relative to its `directory`."""
    if config.log_level.upper() not in logging.getLevelNamesMapping():
        known = ", ".join(logging.getLevelNamesMapping())
        yield ("log_level",), f"{config.log_level!r} is not a level of logging; known are {known}"
    for name, message in wrong_options(config.global_docker_options or {}):
        yield ("global_docker_options", name), message
    for name, api in (config.global_remote_apis or {}).items():
        yield from _api(api, ("global_remote_apis", name))
    first: dict[str, int] = {}
    for index, backend in enumerate(config.backends):
        earlier = first.setdefault(tool_prefix(backend.backend_name_ref), index)
        if earlier != index:
            other = config.backends[earlier].backend_name_ref
            told = f"is too like {other!r}, the name of backends[{earlier}], for tools to tell them apart; rename one"
            yield ("backends", index, "backend_name_ref"), told
    for index, backend in enumerate(config.backends):
        for place, message in _backend(backend, config, directory):
            yield ("backends", index, *place), message


def _backend(backend: BackendServerConfig, config: AppConfig, directory: Path) -> _Found:
    mode = backend.orchestration_mode
    for other, (_, fields) in _KINDS.items():
        for field in fields:
            if other != mode and getattr(backend, field) is not None:
                told = f"means nothing with orchestration_mode {mode!r}; take it away, or change the mode"
                yield (field,), told
    yield from _KINDS[mode][0](backend, config, directory)
    template = backend.template_data_path_host
    if template is None:
        return
    if mode in ("remote_http_api", "remote_url"):
        yield ("template_data_path_host",), "is of this machine, and the server is not"
    elif not host_path(template, directory).is_dir():
        yield ("template_data_path_host",), f"{host_path(template, directory)} is not a directory"
    elif (
        mode == "local_docker" and backend.container_template_data_path is None and backend.backend_type != "filesystem"
    ):
        yield ("template_data_path_host",), "needs container_template_data_path: where the container sees its copy"


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
    wrong = list(_wrong_variables(backend.env or {}))
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
    for field, message in _missing_details(backend):
        yield (field,), message


_KINDS: dict[Mode, tuple[Callable[[BackendServerConfig, AppConfig, Path], _Found], tuple[str, ...]]] = {
    "local_docker": (
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
    "remote_http_api": (
        _instance,
        ("remote_api_config_ref", "remote_api_config_inline", "remote_resource_type_identifier"),
    ),
    "local_program": (_program, ("command", "env", "reads")),
    "remote_url": (_url, ("url", "auth_details")),
}
"""The check of each kind, and the fields that no other kind may have."""


def server_of(
    backend: BackendServerConfig, file: BackendFile, call_timeout: float, session: str
) -> AbstractAsyncContextManager[BackendServer]:
    """Return the context in which a server of its kind runs; leaving it removes the server."""
    match backend.orchestration_mode:
        case "local_docker":
            return container(backend, file)
        case "local_program":
            return program(backend, file)
        case "remote_url":
            return nullcontext(remote_url(backend))
        case "remote_http_api":
            return remote_instance(backend, file, call_timeout, session)


def _api(api: RemoteApiConfig, place: _Place) -> _Found:
    if not is_http(api.base_url):
        yield (*place, "base_url"), _NO_URL
    for field, message in _missing_details(api):
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


_NEEDED = {"none": (), "bearer_token": ("token",), "custom_header": ("header_name", "header_value")}
_LIKE_A_VARIABLE = re.compile(r"\$[A-Za-z_{]")
_HEADER = re.compile(r"[!-~]([ -~]*[!-~])?")


def _missing_details(given: Authentication) -> Iterator[tuple[str, str]]:
    """Yield what the authentication lacks: the field, and what to change."""
    details = given.auth_details or {}
    needed = _NEEDED[given.auth_type]
    field = "auth_type" if given.auth_details is None else "auth_details"
    if missing := [name for name in needed if not details.get(name)]:
        yield field, f"{given.auth_type} needs auth_details with {' and '.join(missing)}"
    if needed and (unknown := sorted(set(details) - set(needed))):
        yield "auth_details", f"{given.auth_type} knows no {', '.join(unknown)}; it has {' and '.join(needed)}"
    unset = list(_wrong_variables(details))
    yield from (("auth_details", message) for message in unset)
    for name, value in {} if unset else expanded(details).items():
        if value and not _HEADER.fullmatch(value):
            yield "auth_details", f"{name} cannot be sent: it holds a line break, a space at an end, or no ASCII"


def _wrong_variables(values: Mapping[str, str]) -> Iterator[str]:
    """Yield what to change for each `${NAME}` in the values that is not a variable of this environment, and whatever
    else a shell would replace: here it would be sent as it is written."""
    for name in sorted({name for value in values.values() for name in VARIABLE.findall(value)}):
        if name not in os.environ:
            yield f"the environment variable {name} is not set"
    for key, value in values.items():
        if _LIKE_A_VARIABLE.search(VARIABLE.sub("", value)):  # which may be a secret and is not shown
            yield (
                f"{key} holds a $ before a name or a brace, and only ${{NAME}} is replaced: write that; a $ that is "
                "meant can come in the variable"
            )

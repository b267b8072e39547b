"""Files of tool backends: those of eval-protocol load as they are, and what is wrong is told with its line."""

import json
import os
import re
import sys
import textwrap
from pathlib import Path

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.cli_agent.env import CliAgentEnv
from opencode_env.errors import BackendFileError
from opencode_env.tool_backends.backend_file import read_backends
from opencode_env.tool_backends.description import option_words
from opencode_env.tool_backends.feature import BackendTools
from opencode_env.user_simulation import SimulatedUsers
from opencode_rlm.env import OpenCodeRLMEnv, OpenCodeRLMEnvConfig
from pydantic import ValidationError

WRITTEN_FOR_EVAL_PROTOCOL = """\
    log_level: "DEBUG"
    global_docker_options:
      network: "bridge"
      mem_limit: "256m"
      template_commit_delay_s: 5
    global_remote_api_defaults:
      timeout: 20
    global_remote_apis:
      duck_farm:
        base_url: "https://ducks.example/api"
        create_instance_endpoint: "/instances"
        delete_instance_endpoint_template: "/instances/{remote_instance_id}"
        call_tool_endpoint_template: "/instances/{remote_instance_id}/call"
        auth_type: "bearer_token"
        auth_details: {token: "t"}
    backends:
      - backend_name_ref: "filesystem_test"
        backend_type: "filesystem"
        orchestration_mode: "local_docker"
        instance_scoping: "session"
        mcp_transport: "stdio"
        docker_image: "mcp/filesystem"
        container_command: ["/data"]
        template_data_path_host: "./template"
        docker_run_args: ["--env", "A=b"]
        startup_check_mcp_tool: {tool_name: "list_tools", arguments: {}}
      - backend_name_ref: "shared fetch"
        backend_type: "fetch"
        orchestration_mode: "local_docker"
        instance_scoping: "shared_global"
        docker_image: "mcp/fetch:latest"
        container_port: 8080
        container_volumes:
          ./template: {bind: /seen, mode: ro}
      - backend_name_ref: "ducks"
        backend_type: "duckdb"
        orchestration_mode: "remote_http_api"
        remote_resource_type_identifier: "duckdb_v1"
        remote_api_config_ref: "duck_farm"
      - backend_name_ref: "memory"
        backend_type: "memory"
        orchestration_mode: "remote_http_api"
        remote_resource_type_identifier: "memory_v1"
        remote_api_config_inline:
          base_url: "http://127.0.0.1:9"
          auth_type: custom_header
          auth_details: {header_name: X-Key, header_value: k}
"""


def write(directory: Path, text: str) -> Path:
    """The file, beside a directory `template`."""
    (directory / "template").mkdir(exist_ok=True)
    path = directory / "backends.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def test_a_file_of_eval_protocol_loads_as_it_is(tmp_path: Path) -> None:
    file = read_backends(write(tmp_path, WRITTEN_FOR_EVAL_PROTOCOL))
    names = [backend.backend_name_ref for backend in file.config.backends]
    assert names == ["filesystem_test", "shared fetch", "ducks", "memory"]
    assert file.directory == tmp_path.resolve()
    as_json = tmp_path / "backends.json"
    as_json.write_text(json.dumps(file.config.model_dump(mode="json"), indent=2))
    assert read_backends(as_json).config == file.config


def test_an_empty_file_has_no_backends(tmp_path: Path) -> None:
    assert read_backends(write(tmp_path, "")).config.backends == []


CONTAINER = """\
    backends:
      - backend_name_ref: notes
        orchestration_mode: local_docker
        docker_image: image
        container_port: 80
"""
API = """\
    global_remote_apis:
      farm:
        base_url: http://127.0.0.1:9
"""
INSTANCE = """\
    backends:
      - backend_name_ref: notes
        orchestration_mode: remote_http_api
        remote_resource_type_identifier: notes_v1
"""
URL = """\
    backends:
      - backend_name_ref: notes
        orchestration_mode: remote_url
        url: http://127.0.0.1:9/mcp
"""
PROGRAM = """\
    backends:
      - backend_name_ref: notes
        orchestration_mode: local_program
        command: [{}]
"""
MADE = API + INSTANCE
CAT = PROGRAM.format("cat")
FARM = "remote_api_config_ref: farm"
BEARER, HEADER = "auth_type: bearer_token", "auth_type: custom_header"


def further(text: str, *lines: str) -> str:
    """A text whose last API or backend goes on with these lines."""
    return text + "".join(f"        {line}\n" for line in lines)


def in_backend(text: str, line: int, told: str, *lines: str) -> tuple[str, str]:
    """A text that goes on with these lines, and what is told of its first backend."""
    return further(text, *lines), f"line {line}, backends[0]{told}"


def in_api(line: int, told: str, *lines: str) -> tuple[str, str]:
    """An API that goes on with these lines, and what is told of it."""
    return further(API, *lines), f"line {line}, global_remote_apis.farm{told}"


WRONG = {
    "no YAML": ("backends: [\n", "line 2, the text: is not YAML"),
    "no mapping": ("- 1\n", "line 1, the file: input should be a valid dictionary"),
    "an unknown key at the top": ("log_level: INFO\nbackend: []\n", "line 2, backend: is not a key that is known here"),
    "an unknown key of a backend": in_backend(CONTAINER, 6, ".image: is not a key", "image: x"),
    "an unknown key of an API": in_api(4, ".token: is not a key", "token: x"),
    "an unknown key of a volume": (
        further(CONTAINER, "container_volumes: {template: {bind: /x, readonly: true}}"),
        "line 6, backends[0].container_volumes.template.readonly: is not a key",
    ),
    "a key that stands twice": (further(CONTAINER, "docker_image: x"), "line 6, docker_image: stands in line 4"),
    "a wrong type": in_backend(CONTAINER.replace("80", "high"), 5, ".container_port: input should be a valid int"),
    "not a port": in_backend(CONTAINER.replace("80", "80000"), 5, ".container_port: input should be"),
    "a wrong mode": in_backend(CONTAINER.replace("local_docker", "docker"), 3, ".orchestration_mode: input should"),
    "no name": (
        "backends:\n  - orchestration_mode: remote_url\n    url: http://localhost\n",
        "line 2, backends[0].backend_name_ref: is missing",
    ),
    "a wrong log level": ("log_level: LOUD\n", "line 1, log_level: 'LOUD' is not a level of logging"),
    "a doubled name": (
        URL + "      - {backend_name_ref: notes, orchestration_mode: remote_url, url: 'http://a'}\n",
        "line 5, backends[1].backend_name_ref: is too like 'notes', the name of backends[0]",
    ),
    "names that tools cannot tell apart": (
        URL.replace("notes", "my notes")
        + "      - {backend_name_ref: my_notes, orchestration_mode: remote_url, url: 'http://a'}\n",
        "line 5, backends[1].backend_name_ref: is too like 'my notes'",
    ),
    "no image": in_backend(CONTAINER.replace("        docker_image: image\n", ""), 2, ": has no docker_image"),
    "no port": in_backend(CONTAINER.replace("        container_port: 80\n", ""), 2, ": has no container_port"),
    "a host path that is not there": in_backend(
        CONTAINER, 7, ".container_volumes../nowhere: ", "container_volumes:", "  ./nowhere: {bind: /x}"
    ),
    "no such template": in_backend(CONTAINER, 6, ".template_data_path_host: ", "template_data_path_host: nowhere"),
    "a template that no container sees": in_backend(
        CONTAINER,
        6,
        ".template_data_path_host: needs container_template_data_path",
        "template_data_path_host: template",
    ),
    "an option that is ours": (
        further(CONTAINER, "docker_run_args:", '  - "--env=A=b"', '  - "--name=x"'),
        "line 8, backends[0].docker_run_args[1]: --name is set by the environment",
    ),
    "an unknown option of containers": (
        "global_docker_options:\n  memory: 1g\n",
        "line 2, global_docker_options.memory: is not an option",
    ),
    "an option of containers with many values": (
        "global_docker_options:\n  mem_limit: [1g]\n",
        "line 2, global_docker_options.mem_limit: must be a single value",
    ),
    "no type of resource": in_backend(
        MADE.replace("remote_resource_type_identifier: notes_v1", FARM), 5, ": has no remote_resource_type_identifier"
    ),
    "no API": in_backend(INSTANCE, 2, ": names no API"),
    "two APIs": in_backend(
        MADE, 8, ".remote_api_config_ref: stands beside", FARM, "remote_api_config_inline: {base_url: 'http://a'}"
    ),
    "a reference that leads nowhere": (
        further(MADE, "remote_api_config_ref: form"),
        "line 8, backends[0].remote_api_config_ref: 'form' leads nowhere; global_remote_apis has farm",
    ),
    "an API over stdio": in_backend(MADE, 9, ".mcp_transport: must be http", FARM, "mcp_transport: stdio"),
    "a bearer without its token": in_api(4, ".auth_type: bearer_token needs auth_details with token", BEARER),
    "a header without its value": in_api(
        5, ".auth_details: custom_header needs auth_details with header_value", HEADER, "auth_details: {header_name: X}"
    ),
    "details of another authentication": in_api(
        5, ".auth_details: bearer_token knows no header_name", BEARER, "auth_details: {token: t, header_name: X}"
    ),
    "a token of a variable that is not set": in_api(
        5, ".auth_details: the environment variable NO_TOKEN is not set", BEARER, "auth_details: {token: '${NO_TOKEN}'}"
    ),
    "a token that no header can hold": in_api(
        5, ".auth_details: token cannot be sent: it holds a line break", BEARER, 'auth_details: {token: "hush-hush\\n"}'
    ),
    "a template without the instance": (
        further(API, "delete_instance_endpoint_template: /all"),
        "line 4, global_remote_apis.farm.delete_instance_endpoint_template: must hold {remote_instance_id}",
    ),
    "not a base URL": (API.replace("http://127.0.0.1:9", "farm"), "line 3, global_remote_apis.farm.base_url: must"),
    "a port that is a password": in_backend(
        URL.replace("127.0.0.1:9", "user:hush-hush"), 4, ".url: must begin with http:// or https://, name a host"
    ),
    "a variable of a program that is not set": (
        "backends:\n  - {backend_name_ref: a, orchestration_mode: local_program, command: [x],\n"
        "     env: {KEY: '${NO_SUCH_KEY}'}}\n",
        "line 3, backends[0].env: the environment variable NO_SUCH_KEY is not set",
    ),
    "not a limit": (
        "global_remote_api_defaults:\n  timeout: 0\n",
        "line 2, global_remote_api_defaults.timeout: input should be greater than 0",
    ),
    "a program without a command": in_backend(
        "backends:\n  - {backend_name_ref: a, orchestration_mode: local_program}\n", 2, ": has no command"
    ),
    "no such program": in_backend(
        PROGRAM.format("no-such"), 4, ".command[0]: 'no-such' is not a program that can be found on the PATH"
    ),
    "a path that is not there": in_backend(
        PROGRAM.format("/no/such"), 4, ".command[0]: '/no/such' is not a program that can be found"
    ),
    "a program on another PATH": in_backend(
        CAT, 4, ".command[0]: 'cat' is not a program that can be found on the PATH '/nowhere'", "env: {PATH: /nowhere}"
    ),
    "not a program": in_backend(PROGRAM.format("/etc/passwd"), 4, ".command[0]: '/etc/passwd' is there"),
    "a program of its own directory that has none": in_backend(
        PROGRAM.format("./serve"), 4, ".command[0]: './serve' is not in its own directory"
    ),
    "a shell's variable": (
        further(CAT, "env: {A: x, KEY: 'pa$hush'}"),
        "line 5, backends[0].env: KEY holds a $ before a name or a brace, and only ${NAME} is replaced",
    ),
    "a shell's default": in_backend(CAT, 5, ".env: KEY holds a $", "env: {KEY: '${KEY:-hush}'}"),
    "a brace that does not close": in_backend(CAT, 5, ".env: KEY holds a $", "env: {KEY: '${KEY'}"),
    "a shell's variable in a token": in_api(
        5, ".auth_details: token holds a $", BEARER, "auth_details: {token: '$HUSH'}"
    ),
    "a variable in a URL": (
        URL.replace("http://127.0.0.1:9/mcp", "'http://${HOST}:9/mcp'"),
        "line 4, backends[0].url: must begin with http:// or https://, name a host, and hold no space and no ${NAME}",
    ),
    "the form of other programs": (
        '{"mcpServers": {"notes": {"command": "cat", "args": []}}}',
        "line 1, mcpServers: is how other programs name their servers; here each is an entry of backends",
    ),
    "no URL": in_backend(URL.replace("        url: http://127.0.0.1:9/mcp\n", ""), 2, ": has no url"),
    "not a URL": in_backend(URL.replace("http://", "ftp://"), 4, ".url: must begin with http"),
    "a field of another mode": in_backend(
        URL, 5, ".docker_image: means nothing with orchestration_mode 'remote_url'", "docker_image: x"
    ),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BackendFileError) as raised:
        read_backends(write(tmp_path, text))
    assert len(raised.value.problems) == 1
    assert words in str(raised.value)
    assert "hush" not in str(raised.value)


def test_everything_wrong_is_told_at_once_and_no_secret_with_it(tmp_path: Path) -> None:
    text = further(URL, BEARER, "auth_details: {toke: hush-hush}", "env: {A: b}")
    with pytest.raises(BackendFileError) as raised:
        read_backends(write(tmp_path, text))
    assert [problem.line for problem in raised.value.problems] == [6, 6, 7]
    assert "hush" not in str(raised.value)


def test_mistakes_of_every_kind_are_told_at_once(tmp_path: Path) -> None:
    types = """\
    colour: red
    global_remote_apis:
      farm: {base_url: 7}
    backends:
      - backend_name_ref: a
        backend_name_ref: b
        orchestration_mode: local_docker
        container_port: high
      - orchestration_mode: remote_http_api
      - {backend_name_ref: c, orchestration_mode: docker}
      - 7
    """
    values = """\
    log_level: LOUD
    global_remote_apis:
      barn: {base_url: "http://localhost", auth_type: bearer_token}
    backends:
      - backend_name_ref: a
        orchestration_mode: local_docker
        docker_image: i
        container_port: 80
        url: http://localhost
      - backend_name_ref: d
        orchestration_mode: local_program
        command: [no-such-program]
        reads: [./nowhere]
    """
    assert told_of(tmp_path, types) == [
        (1, "colour"),
        (3, "global_remote_apis.farm.base_url"),
        (6, "backend_name_ref"),
        (8, "backends[0].container_port"),
        (9, "backends[1].backend_name_ref"),
        (10, "backends[2].orchestration_mode"),
        (11, "backends[3]"),
    ]
    assert told_of(tmp_path, values) == [
        (1, "log_level"),
        (3, "global_remote_apis.barn.auth_type"),
        (9, "backends[0].url"),
        (12, "backends[1].command[0]"),
        (13, "backends[1].reads[0]"),
    ]


def told_of(directory: Path, text: str) -> list[tuple[int, str]]:
    """Where a text is wrong: lines and places."""
    with pytest.raises(BackendFileError) as raised:
        read_backends(write(directory, text))
    return [(problem.line, problem.place) for problem in raised.value.problems]


@pytest.mark.parametrize("first", ["#!{}", "#!{} -u", "#! /usr/bin/env python4", "#!/usr/bin/env -S python4 -u"])
def test_a_script_whose_interpreter_it_does_not_see_says_what_to_name(tmp_path: Path, first: str) -> None:
    interpreter = tmp_path / "venv" / "bin" / "python4"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to("/bin/sh")
    script = tmp_path / "serve"
    script.write_text(first.format(interpreter) + "\nexit\n")
    script.chmod(0o755)
    text = further(PROGRAM.format(script), f"env: {{PATH: '{interpreter.parent}:/usr/bin:/bin'}}")
    with pytest.raises(BackendFileError) as raised:
        read_backends(write(tmp_path, text))
    assert [str(problem) for problem in raised.value.problems] == [
        f"line 4, backends[0].command[0]: the first line of {script} asks for {interpreter}, which it does not see: "
        f"name {tmp_path}/venv in reads"
    ]
    assert read_backends(write(tmp_path, further(text, f"reads: [{tmp_path}/venv]"))).config.backends


def test_programs_that_can_run_are_found_wherever_they_may_lie(tmp_path: Path) -> None:
    own = write(tmp_path, "").parent / "template" / "serve"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    for command in ("sh", "/bin/sh", sys.executable, "./serve"):
        text = further(PROGRAM.format(command), "template_data_path_host: template")
        assert read_backends(write(tmp_path, text)).config.backends


def test_a_script_whose_interpreter_is_nowhere_says_so(tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text("#!/usr/bin/env no-such-python\n")
    script.chmod(0o755)
    with pytest.raises(BackendFileError, match="asks for no-such-python, which is not a program here"):
        read_backends(write(tmp_path, PROGRAM.format(script)))


TASKSET = {"id": "opencode-env"}


def test_a_file_that_cannot_be_read_is_no_configuration_of_an_environment(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"line 1, the text: cannot be read: .*No such file"):
        OpenCodeEnvConfig.model_validate({"taskset": TASKSET, "backends": {"file": str(tmp_path / "none.yaml")}})


def test_a_call_is_given_up_here_before_the_agent_gives_it_up(tmp_path: Path) -> None:
    backends = {"file": str(write(tmp_path, URL)), "call_timeout": 600.0}
    with pytest.raises(ValueError, match=r"must be below --env\.agent\.harness\.tool-timeout 600"):
        OpenCodeEnvConfig.model_validate({"taskset": TASKSET, "backends": backends})


def test_options_of_containers_are_those_of_the_command_line() -> None:
    options = {
        "environment": {"A": "b"},
        "labels": ["x=y"],
        "extra_hosts": {"there": "10.0.0.1"},
        "cap_drop": ["ALL"],
        "nano_cpus": 500_000_000,
        "privileged": False,
        "read_only": True,
        "network_mode": "none",
        "remove": True,
        "user": None,
    }
    assert option_words(options) == [
        *("--env", "A=b", "--label", "x=y", "--add-host", "there:10.0.0.1", "--cap-drop", "ALL"),
        *("--cpus", "0.5", "--read-only", "--network", "none"),
    ]


def test_the_sample_file_can_be_used_and_so_can_what_it_shows_in_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npx = tmp_path / "npx"  # which need not be installed
    npx.write_text("#!/bin/sh\n")
    npx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}")
    sample = Path(__file__).parents[3] / "configs" / "eval" / "backends.yaml"
    assert [backend.backend_name_ref for backend in read_backends(sample).config.backends] == ["memory"]
    for name in ("SEARCH_TOKEN", "FARM_TOKEN"):
        monkeypatch.setenv(name, "t")
    (tmp_path / "template").mkdir()
    whole = tmp_path / "backends.yaml"
    whole.write_text("\n".join(re.sub(r"^  # (?=- |  )", "  ", line) for line in sample.read_text().splitlines()))
    names = [backend.backend_name_ref for backend in read_backends(whole).config.backends]
    assert names == ["memory", "files", "search", "farm"]


def test_a_recursive_environment_takes_backends_too(tmp_path: Path) -> None:
    taskset, file = {"taskset": {"id": "opencode-rlm"}}, write(tmp_path, URL)
    config = OpenCodeRLMEnvConfig.model_validate({**taskset, "backends": {"file": str(file)}})
    assert OpenCodeRLMEnvConfig.model_validate_json(config.model_dump_json()).backends == config.backends
    with pytest.raises(ValidationError, match="must be below --env"):
        OpenCodeRLMEnvConfig.model_validate({**taskset, "backends": {"file": str(file), "call_timeout": 600}})
    assert CliAgentEnv in OpenCodeRLMEnv.__bases__
    features = [type(feature) for feature in OpenCodeRLMEnv(config)._features]
    assert {BackendTools, SimulatedUsers} <= set(features)

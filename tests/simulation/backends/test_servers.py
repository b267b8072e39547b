"""Every kind of backend, with a real MCP server: it works, its faults are the infrastructure's, and nothing is left."""

import contextlib
import json
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import verifiers.v1 as vf
from opencode_env.tool_backends import remote as elsewhere
from opencode_env.tool_backends.backend_file import read_backends
from opencode_env.tool_backends.connection import BackendConnection, http_client
from opencode_env.tool_backends.description import RemoteApiConfig, StartupCheck
from opencode_env.tool_backends.options import BackendsConfig
from opencode_env.tool_backends.serving import check_start, starting
from opencode_simulation.hub import hub
from rollout_sandbox.podman import engine

from tests.simulation.backends.surroundings import (
    TOKEN,
    InstanceApi,
    directories_here,
    in_container,
    instance,
    notes_at,
    program,
    programs_here,
    said,
    write_file,
)
from tests.support.machine import patience
from tests.support.user_home import closed_port, podman_containers
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("sandboxes")

TOOLS = ["add_note", "read_data", "surroundings", "refuse", "hang", "die"]


@contextlib.asynccontextmanager
async def started(
    directory: Path,
    backend: dict[str, Any],
    *,
    call_timeout: float = 60.0,
    start_timeout: float = 120.0,
    **rest: Any,
) -> AsyncIterator[BackendConnection]:
    """The backend of a file with one, as a rollout starts it."""
    rest.setdefault("global_remote_api_defaults", {"timeout": 300})  # this machine may be busy
    path = write_file(directory / "backends.yaml", backend, **rest)
    options = BackendsConfig(file=path, call_timeout=call_timeout, start_timeout=start_timeout)
    file = read_backends(path)
    async with starting(file.config.backends[0], file, options, "a-session") as made:
        yield made


async def fails_to_start(directory: Path, backend: dict[str, Any], words: str, **options: Any) -> str:
    """Start a backend, which must fail with these words (a pattern); all that is shown of the failure."""
    with pytest.raises(vf.ToolsetError, match=words) as raised:
        async with started(directory, backend, **options):
            pass
    return "".join(traceback.format_exception(raised.value))


def left_here() -> set[str]:
    """Names of the containers that this process has, or would leave behind: others use podman too."""
    prefix = engine._prefix()
    found = Path(tempfile.gettempdir()).glob(f"{Path(prefix).name}*")
    return {f"vf-{str(path).removeprefix(prefix)}" for path in found}


async def test_a_program_answers_keeps_its_state_sees_nothing_of_ours_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    template = tmp_path / "template"
    template.mkdir()
    (template / "letter.txt").write_text("dear reader\n")
    async with started(tmp_path, program(template_data_path_host="template", env={"GIVEN": "for-it-alone"})) as notes:
        assert [tool.name for tool in notes.tools] == TOOLS
        assert said(await notes.call("add_note", {"text": "one"})) == "1 notes: one"
        assert said(await notes.call("add_note", {"text": "two"})) == "2 notes: one, two"
        assert said(await notes.call("read_data", {"name": "letter.txt"})) == "dear reader\n"
        assert said(await notes.call("read_data", {"name": "letter.txt"})) == "dear reader\nread before\n"
        assert (template / "letter.txt").read_text() == "dear reader\n"
        seen = said(await notes.call("surroundings", {}))
        assert "'GIVEN'" in seen
        assert "OPENAI_API_KEY" not in seen
        assert seen.endswith("writable False")
        refusals = {"refuse": "Error executing tool refuse", "add_note": "Field required", "no_tool": "Unknown tool"}
        for tool, words in refusals.items():
            result = await notes.call(tool, {})
            assert result.is_error
            assert words in said(result)
        assert programs_here() != []
        assert "for-it-alone" not in str(programs_here())
    await until(lambda: programs_here() == [])
    assert directories_here() == []


async def test_a_program_whose_tool_reads_any_path_finds_nothing_of_the_operators(tmp_path: Path) -> None:
    for name in ("secret.env", "shown.txt"):
        (tmp_path / name).write_text("the answer")
    async with started(tmp_path, program(reads=["shown.txt"])) as notes:
        hidden = [tmp_path / "secret.env", Path.home() / ".profile", Path("/etc/shadow"), Path("/proc/1/environ")]
        for path in (*hidden, Path(hub().path), Path(__file__)):
            assert "the answer" not in said(await notes.call("read_data", {"name": str(path)}))
        assert "No such file" in said(await notes.call("read_data", {"name": str(hidden[0])}))
        assert "No such file" in said(await notes.call("read_data", {"name": str(Path(__file__))}))
        shown = said(await notes.call("read_data", {"name": str(tmp_path / "shown.txt")}))
        assert "Read-only file system" in shown
    assert (tmp_path / "shown.txt").read_text() == "the answer"


async def test_a_server_that_hangs_or_dies_in_a_call_is_the_infrastructures_failure(tmp_path: Path) -> None:
    async with started(tmp_path, program(), call_timeout=1.0) as notes:
        with pytest.raises(vf.ToolsetError, match="'hang' of backend 'notes' did not answer within 1 s"):
            await notes.call("hang", {})
        for tool in ("die", "add_note"):
            with pytest.raises(vf.ToolsetError, match="backend 'notes'"):
                await notes.call(tool, {"text": "late"})


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('no licence')"], "it said: no licence"),
        (["sh", "-c", "echo Usage: serve; exit 2"], "it printed 'Usage: serve' on its stdout; it said: nothing"),
        (["printf", "no newline"], "it printed 'no newline' on its stdout"),
        (["sh", "-c", "echo bad key $KEY >&2; exit 3"], r"it said: bad key \*\*\*"),
    ],
    ids=["said", "printed", "without a newline", "its key is not shown"],
)
async def test_a_program_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], words: str
) -> None:
    monkeypatch.setenv("OUR_KEY", "hush-hush")
    await fails_to_start(tmp_path, program(command=command, env={"KEY": "${OUR_KEY}"}), words)


async def test_a_program_that_says_nothing_is_given_up_in_time(tmp_path: Path) -> None:
    words = r"'notes' did not start within 1 s \(--env.backends.start-timeout\)"
    await fails_to_start(tmp_path, program(command=["sleep", "59801"]), words, start_timeout=1.0)


async def test_a_program_that_speaks_something_else_is_quoted_when_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "hush-hush")
    other = program(command=["sh", "-c", "echo; echo Welcome $KEY; echo more; sleep 59802"], env={"KEY": "${OUR_KEY}"})
    words = r"within .* s .*: it printed 'Welcome \*\*\*' on its stdout; it said: noth"
    await fails_to_start(tmp_path, other, words, start_timeout=patience(1.0))


async def test_a_start_up_check_is_a_call_that_must_succeed(tmp_path: Path) -> None:
    checked = program(startup_check_mcp_tool={"tool_name": "add_note", "arguments": {"text": "checked"}})
    async with started(tmp_path, checked) as notes:
        assert said(await notes.call("add_note", {"text": "one"})) == "2 notes: checked, one"
        for name in ("ping", "list_tools"):
            await check_start(notes, StartupCheck(tool_name=name))
        failed = "start-up check 'refuse' of backend 'notes' failed: Error executing tool refuse"
        with pytest.raises(vf.ToolsetError, match=failed):
            await check_start(notes, StartupCheck(tool_name="refuse"))
        with pytest.raises(vf.ToolsetError, match="it has no tool 'greet', only add_note"):
            await check_start(notes, StartupCheck(tool_name="greet"))


def remote(port: int, token: str) -> dict[str, Any]:
    where = {"orchestration_mode": "remote_url", "url": f"http://127.0.0.1:{port}/mcp"}
    return {"backend_name_ref": "notes", **where, "auth_type": "bearer_token", "auth_details": {"token": token}}


async def test_a_server_elsewhere_is_asked_with_its_bearer_and_missed_when_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_TOKEN", TOKEN)
    port = closed_port()
    async with notes_at(port) as process, started(tmp_path, remote(port, "${NOTES_TOKEN}")) as notes:
        assert said(await notes.call("add_note", {"text": "far"})) == "1 notes: far"
        assert (await notes.call("refuse", {})).is_error
        for words in ("cannot be connected to", "it answers 401, so look at auth_type"):
            await fails_to_start(tmp_path, remote(port, "another"), words)
        process.kill()
        await process.ended()
        with pytest.raises(vf.ToolsetError, match="backend 'notes'"):
            await notes.call("add_note", {"text": "late"})


async def test_an_instance_is_made_used_and_deleted(tmp_path: Path) -> None:
    async with InstanceApi() as api:
        async with started(tmp_path, instance(), global_remote_apis={"here": api.config}) as notes:
            assert said(await notes.call("add_note", {"text": "far"})) == "1 notes: far"
            assert list(api.alive) == ["made 0"]
        assert api.alive == {}
        made, deleted = api.asked
        assert made[2] == {
            "resource_type_identifier": "notes_v1",
            "num_instances": 1,
            "session_id": "a-session",
            "instance_scoping": "session",
            "template_details": None,
        }
        assert deleted[:2] == ("DELETE", "/v1/made/made 0")


async def test_calls_go_through_the_api_where_it_wants_that(tmp_path: Path) -> None:
    async with InstanceApi(proxied=True) as api:
        apis = {"here": api.config}
        async with started(tmp_path, instance(), global_remote_apis=apis, call_timeout=patience(1.0)) as notes:
            result = await notes.call("add_note", {"text": "far"})
            assert json.loads(said(result)) == {"called": "add_note", "with": {"text": "far"}}
            refused = await notes.call("refuse", {})
            assert (refused.is_error, said(refused)) == (True, "no such arguments")
            with pytest.raises(vf.ToolsetError, match="was not answered in time"):
                await notes.call("hang", {})
        assert api.alive == {}


@pytest.mark.parametrize("answer", ["[]", "{}", '[{"remote_instance_id": "x"}]', "not JSON"])
async def test_an_api_that_answers_with_something_else_is_the_infrastructures_failure(
    tmp_path: Path, answer: str
) -> None:
    async with InstanceApi(break_creation=answer) as api:
        words = "the API of tool backend 'notes' made"
        await fails_to_start(tmp_path, instance(), words, global_remote_apis={"here": api.config})


async def test_an_instance_whose_server_cannot_be_used_is_deleted_all_the_same(tmp_path: Path) -> None:
    async with InstanceApi() as api:
        checked = instance(startup_check_mcp_tool={"tool_name": "refuse"})
        await fails_to_start(tmp_path, checked, "start-up check", global_remote_apis={"here": api.config})
        assert [asked[0] for asked in api.asked] == ["POST", "DELETE"]
        assert api.alive == {}


async def test_an_instance_that_is_not_deleted_is_tried_again_then_told_and_its_rollout_is_none_the_worse(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_PAUSES", (0.01, 0.01))
    async with InstanceApi() as api:
        given = api.config | {"delete_instance_endpoint_template": "/made/{remote_instance_id}?key=pass-word"}
        for refusals, removed in ((1, True), (3, False)):
            api.refused_deletions = refusals
            async with started(tmp_path, instance(), global_remote_apis={"here": given}):
                pass
            assert (api.alive == {}) == removed
            told = "left behind, to be removed by hand: instance 'made 0' of tool backend 'notes'" in caplog.text
            assert told != removed
    assert "you sent" in caplog.text
    assert TOKEN not in caplog.text
    assert "pass-word" not in caplog.text


async def test_a_rollout_waits_twice_for_an_api_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_PAUSES", (0.01, 0.01, 0.01))
    async with InstanceApi(silent=True) as here:
        config = RemoteApiConfig.model_validate(here.config)
        made = elsewhere.Instance(remote_instance_id="x", mcp_endpoint_url="http://127.0.0.1:9/mcp")
        async with http_client(config.headers(), httpx2.Timeout(0.5)) as client:
            api = elsewhere.InstanceApi(config, "notes", client)
            with pytest.raises(vf.ToolsetError, match=r"DELETE /made/x at the API .* was not answered in time"):
                await api.delete(made)
        assert len(here.asked) <= 2  # it may not even have come to read it


async def test_a_failure_to_start_shows_no_secret(tmp_path: Path) -> None:
    async with InstanceApi(break_creation='[{"remote_instance_id": "x", "url": "http://a/?key=hush-hush"}]') as api:
        apis = {"here": api.config | {"create_instance_endpoint": "/make?key=pass-word"}}
        words = "mcp_endpoint_url: Field required"
        shown = await fails_to_start(tmp_path, instance(), words, global_remote_apis=apis)
        far = {"backend_name_ref": "far", "orchestration_mode": "remote_url"}
        url = f"http://user:pass-word@127.0.0.1:{closed_port()}/mcp?key=hush-hush"
        shown += await fails_to_start(tmp_path, {**far, "url": url}, "'far'")
    assert not [secret for secret in (TOKEN, "pass-word", "hush-hush") if secret in shown]


@pytest.mark.podman
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_container_answers_and_is_removed_with_its_copy_of_the_data(
    tmp_path: Path, podman_image: str, transport: str
) -> None:
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "letter.txt").write_text("dear reader\n")
    options = {"mem_limit": "512m", "environment": {"SET": "by all"}, "template_commit_delay_s": 5}
    backend = in_container(podman_image, transport, startup_check_mcp_tool={"tool_name": "ping", "arguments": {}})
    before = left_here()  # idle ones
    async with started(tmp_path, backend, global_docker_options=options) as notes:
        (name,) = left_here() - before
        assert name in podman_containers()
        assert said(await notes.call("read_data", {"name": "letter.txt"})) == "dear reader\n"
        assert said(await notes.call("read_data", {"name": "letter.txt"})) == "dear reader\nread before\n"
        assert "'SET'" in said(await notes.call("surroundings", {}))
    assert name not in podman_containers()
    assert (tmp_path / "template" / "letter.txt").read_text() == "dear reader\n"
    assert directories_here() == []
    assert left_here() == before


@pytest.mark.podman
async def test_a_container_that_ends_at_once_says_why_and_is_removed(tmp_path: Path, podman_image: str) -> None:
    (tmp_path / "template").mkdir()
    before = left_here()
    backend = in_container(podman_image, "http", container_command=["sh", "-c", "echo no licence >&2; exit 3"])
    await fails_to_start(tmp_path, backend, "its container has ended; it said: no licence")
    missing = in_container("localhost/no-such-image:1", "http")
    await fails_to_start(tmp_path, missing, "the image is not on this machine")
    assert left_here() == before

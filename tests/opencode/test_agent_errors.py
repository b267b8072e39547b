"""An agent that breaks its own run is scored on the files as they are, and the trace says why."""

import asyncio
from collections.abc import Sequence

import pytest
from agent_sandbox.confined import control_groups
from agent_sandbox.confined.memory_kills import MemoryKills
from opencode_env.cli_agent.interception import role_interception
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.runtimes import Runtime

from tests.support.places import Place
from tests.support.replies import bash, faulty
from tests.support.rollouts import Played, conversation, play
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.opencode

DONE = Reply(text="Done.")
REPORT = '{"type":"error","timestamp":1,"sessionID":"x","error":{"name":"UnknownError","data":{"message":"%s"}}}'
APPEND = (
    "setsid sh -c 'while sleep 0.01; do echo '\\''%s'\\'' >> '$OPENCODE_ENV_STATE'/events.jsonl; done' "
    ">/dev/null 2>&1 &"
)


LAUNCH = "read -r _ _ _ launch _ </proc/$PPID/stat; kill -9 $launch $PPID; sleep 5"


def assert_own(played: Played, *words: str) -> None:
    trace = played.trace
    assert trace.ok, trace.errors
    assert played.scored
    assert all(word in played.record["own_error"] for word in words), played.record["own_error"]
    assert (trace.metrics["agent_error"], trace.metrics["agent_error_own"]) == (1.0, 1.0)
    assert trace.stop_condition == "agent_error"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param([bash("kill -9 $PPID"), DONE], ["was killed or crashed (exit"], id="kill"),
        pytest.param(
            [bash("for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done"), DONE], ["was killed or"], id="kill everything"
        ),
        pytest.param([bash(APPEND % (REPORT % "broken")), DONE], ["reported an error", "broken"], id="faked report"),
        pytest.param(
            [bash(APPEND % (REPORT % "The operation timed out.") + " sleep 1; kill -9 $PPID"), DONE],
            ["was killed or crashed"],
            id="faked time-out",
        ),
    ],
)
async def test_what_the_agents_own_programs_can_do_is_scored_and_named(
    place: Place, script: Sequence[Reply], words: Sequence[str]
) -> None:
    assert_own(await play(place, script), *words)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param([bash("kill -TERM $PPID; sleep 5"), DONE], ["(exit"], id="terminate"),
        pytest.param([bash("kill -SEGV $PPID; sleep 5"), DONE], ["was killed or crashed (exit"], id="crash"),
        pytest.param([bash("echo 1"), bash("kill -9 $PPID"), DONE], ["was killed or crashed"], id="later"),
    ],
)
async def test_it_is_the_same_however_and_whenever_opencode_is_ended(
    confined: Place, script: Sequence[Reply], words: Sequence[str]
) -> None:
    assert_own(await play(confined, script), *words)


@pytest.mark.parametrize(
    "swap",
    [
        "rm events.jsonl stderr.log; mkfifo events.jsonl stderr.log",
        "rm events.jsonl; ln -s /dev/zero events.jsonl",
        "rm -f events.jsonl stderr.log; mkdir events.jsonl stderr.log",
    ],
)
@pytest.mark.parametrize("dies", ["kill -9 $PPID; sleep 5", LAUNCH], ids=["opencode", "its launcher, too"])
async def test_a_log_that_cannot_be_read_is_neither_waited_for_nor_the_sandboxs_failure(
    confined: Place, swap: str, dies: str
) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        played = await play(confined, [bash(f"cd $OPENCODE_ENV_STATE; {swap}; {dies}"), DONE])
    assert_own(played, "was killed or crashed")


async def two_turns(confined: Place, spoil: str) -> AnyTrace:
    """A conversation whose first segment spoils OpenCode's state directory, `{0}`."""
    state = "$OPENCODE_ENV_STATE"
    spoiled = f"rm -f {state}/prompt.txt; {spoil.format(state)}"
    async with conversation(confined, [bash(spoiled), Reply(text="First."), DONE]) as (talk, _):
        await talk.turn("Do the first thing.")
        await talk.turn("Do the second thing.")
    trace: AnyTrace = talk.trace
    return trace


@pytest.mark.parametrize("spoil", ["chmod 500 {0}", "mkdir -p {0}/prompt.txt/x"])
async def test_a_state_directory_in_which_nothing_can_be_written_is_made_anew(confined: Place, spoil: str) -> None:
    trace = await two_turns(confined, spoil)
    assert (trace.ok, trace.metrics["agent_error"], trace.num_turns) == (True, 0.0, 3)


async def test_a_state_directory_that_is_gone_is_not_the_sandboxs_failure(confined: Place) -> None:
    trace = await two_turns(confined, "mv {0} /tmp/x; mkfifo {0}")
    assert (trace.ok, trace.metrics["agent_error_own"]) == (True, 1.0)
    assert trace.info["agent"]["own_error"].startswith("HarnessError: ")


async def test_a_kill_while_the_kernel_has_no_memory_for_the_sandbox_is_the_machines(
    confined: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_groups, "of_group", lambda group: MemoryKills(below_limit=1))
    played = await play(confined, [bash("kill -9 $PPID"), DONE])
    assert played.error.startswith("HarnessError: OpenCode was killed or crashed")
    assert "killed for want of memory meanwhile" in played.error
    assert (played.trace.metrics["agent_error"], played.trace.metrics["agent_error_own"]) == (1.0, 0.0)


async def test_opencode_killed_in_its_rest_before_a_retry_is_no_failure_of_the_endpoints(confined: Place) -> None:
    async def kill(box: Runtime, model: ScriptedModel) -> None:
        await until(lambda: len(model.requests) == 2 and model.active == 0)
        await box.run(["pkill", "-9", "opencode"], {})
        await asyncio.Event().wait()

    async with role_interception(InterceptionServerConfig()) as server:
        failing = [bash("touch made"), faulty("status", status=500)]
        played = await play(confined, failing, during=kill, interception=server, after="ls made")
    assert_own(played, "upstream 500")
    assert played.record["exit_code"] == 137
    assert played.seen == "made\n"
    assert [call.error.status_code for call in played.trace.calls if call.error] == [500]


TRIGGER = """
import glob, os, sqlite3
(store,) = glob.glob(os.environ["OPENCODE_ENV_STATE"] + "/data/opencode/*.db")
connection = sqlite3.connect(store, timeout=60)
rewrite = "update message set data = json_set(new.data, '$.finish', 'tool-calls') where id = new.id"
connection.execute(f"create trigger endless after update on message begin {rewrite}; end")
connection.commit()
print("made")
"""


async def test_a_loop_that_the_agent_has_put_into_opencodes_store_is_ended_and_scored(confined: Place) -> None:
    async with role_interception(InterceptionServerConfig()) as server:
        made = bash(f"cat > /tmp/p.py <<'END'\n{TRIGGER}\nEND\npython3 /tmp/p.py")
        played = await play(confined, lambda request: made if request.turn == 0 else DONE, interception=server)
    assert played.tool_results()[0].strip() == "made"
    assert_own(played, "keeps calling the model without end")


PICTURE = """
import glob, json, os, sqlite3, time
(store,) = glob.glob(os.environ["OPENCODE_ENV_STATE"] + "/data/opencode/*.db")
connection = sqlite3.connect(store, timeout=60)
find = "select id, session_id from message where json_extract(data, '$.role') = 'user'"
((message, session),) = connection.execute(find).fetchall()
part = {"type": "file", "mime": "image/png", "filename": "x.png", "url": "data:image/png;base64,aGVsbG8="}
values = {"id": "prt_zzz", "message_id": message, "session_id": session, "data": json.dumps(part)}
for name in ("time_created", "time_updated"):
    values[name] = int(time.time() * 1000)
names = ", ".join(values)
connection.execute(f"insert into part ({names}) values ({', '.join('?' * len(values))})", list(values.values()))
connection.commit()
print("made")
"""


async def test_a_broken_picture_that_the_agent_has_put_into_opencodes_store_is_its_own_doing(confined: Place) -> None:
    def refuses_pictures(request: ChatRequest) -> Reply:
        if "image_url" in request.body.model_dump_json():
            return faulty("status", status=400, body="the picture cannot be read")
        return made if request.turn == 0 else DONE

    made = bash(f"cat > /tmp/p.py <<'END'\n{PICTURE}\nEND\npython3 /tmp/p.py")
    async with role_interception(InterceptionServerConfig()) as server:
        played = await play(confined, refuses_pictures, interception=server, harness={"images": True})
    assert [call.error.status_code for call in played.trace.calls if call.error] == [400]
    assert_own(played, "the picture cannot be read")

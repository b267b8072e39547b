"""An agent that breaks its own run is scored on the files as they are, and the trace says why."""

import asyncio
from collections.abc import Sequence

import pytest
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import Reply, ScriptedModel
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.runtimes import Runtime

from tests.opencode.test_broken_runs import assert_own
from tests.support.places import Place
from tests.support.replies import bash, faulty, python
from tests.support.rollouts import play
from tests.support.waiting import until

pytestmark = pytest.mark.opencode

DONE = Reply(text="Done.")
REPORT = '{"type":"error","timestamp":1,"sessionID":"x","error":{"name":"UnknownError","data":{"message":"%s"}}}'
APPEND = (
    "setsid sh -c 'while :; do echo '\\''%s'\\'' >> '$OPENCODE_ENV_STATE'/events.jsonl; done' "
    """>/dev/null 2>&1 & until grep -q '^{"type":"error"' "$OPENCODE_ENV_STATE"/events.jsonl; do sleep 0.01; done;"""
)


async def test_an_agent_that_kills_everything_is_scored_and_that_is_named(light_place: Place) -> None:
    kills = bash("for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done")
    assert_own(await play(light_place, [kills, DONE]), "was killed or")


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (APPEND % (REPORT % "broken"), ["reported an error", "broken"]),
        (APPEND % (REPORT % "The operation timed out.") + " kill -9 $PPID", ["was killed or crashed (exit"]),
    ],
    ids=["and goes on", "and kills"],
)
async def test_what_an_agent_says_that_forges_a_report_is_scored_and_a_kill_stays_a_kill(
    confined: Place, command: str, words: Sequence[str]
) -> None:
    assert_own(await play(confined, [bash(command), DONE]), *words)


async def test_opencode_killed_in_its_rest_before_a_retry_is_no_failure_of_the_endpoints(confined: Place) -> None:
    async def kill(box: Runtime, model: ScriptedModel) -> None:
        await until(lambda: len(model.requests) == 2 and model.active == 0)
        await box.run(["pkill", "-9", "opencode"], {})
        await asyncio.Event().wait()

    async with role_interception(InterceptionServerConfig()) as server:
        failing = [bash("touch made"), faulty("status", status=500)]
        played = await play(confined, failing, during=kill, interception=server, after="ls made")
    assert_own(played, "upstream 500")
    assert (played.record["exit_code"], played.seen) == (137, "made\n")
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
        made = python(TRIGGER)
        played = await play(confined, lambda request: made if request.turn == 0 else DONE, interception=server)
    assert played.tool_results()[0].strip() == "made"
    assert_own(played, "keeps calling the model without end")

"""A start of OpenCode that sits before its first model call is ended and started once more, and leaves nothing.

Played by a shell script in the program's place: the real binary parks now and then only.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import Reply
from rollout_sandbox.conformance.subject import LIST_PROCESSES
from verifiers.v1.interception import Interception, InterceptionServerConfig

from tests.support.machine import patience
from tests.support.places import Confined, with_program
from tests.support.rollouts import conversation, play

pytestmark = pytest.mark.usefixtures("sandboxes")

PROGRAM = """#!/bin/sh
[ "$1" = --version ] && { echo 1.18.33; exit; }
[ "$1" = store.js ] && exit
mkdir -p "$XDG_DATA_HOME/opencode"
echo "$*" >>/app/starts
number=$(wc -l </app/starts)
echo '{"type":"step_start","sessionID":"ses_000000000'$number'"}'
echo "start $number" >&2
cat - >>"$XDG_DATA_HOME/said"
case " PARKED " in *" $number "*) setsid sleep 1000 & sleep 1000 ;; esac
[ -e /app/silent ] && exit 3
python3 - "$OPENCODE_ENV_STATE" "$XDG_DATA_HOME/said" <<'CALL'
import json, os, sys, urllib.request
state, said = sys.argv[1:]
options = json.load(open(state + "/config/opencode/opencode.json"))["provider"]["intercepted"]["options"]
body = {"model": "m", "messages": [{"role": "user", "content": open(said).read()}]}
headers = {"Authorization": "Bearer " + options["apiKey"], "Content-Type": "application/json"}
headers["X-Agent-Mark"] = os.environ["OPENCODE_ENV_CODE"] + ":own"
url = options["baseURL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
CALL
"""
"""Notes each start in /app/starts, keeps what it is told in its session store, and parks at some starts."""

SEEN = f"cat /app/starts /tmp/opencode/data/said; {LIST_PROCESSES}"
DONE = Reply(text="Done.")


@pytest.fixture
async def server() -> AsyncIterator[Interception]:
    """Our interception server."""
    async with role_interception(InterceptionServerConfig()) as server:
        yield server


def parking(directory: Path, *starts: int) -> Confined:
    """A sandbox whose OpenCode parks at starts of these numbers."""
    return with_program(directory, PROGRAM.replace("PARKED", " ".join(map(str, starts))))


def settings(startup_time: float) -> dict[str, object]:
    """Of the harness."""
    return {"install": "image", "startup_time": startup_time}


async def test_a_start_that_parks_once_leaves_the_second_one_only(fake_program: Path, server: Interception) -> None:
    place, options = parking(fake_program, 1), settings(patience(3.0))
    played = await play(place, DONE, harness=options, interception=server, prompt="Do it.\n", after=SEEN)
    assert played.trace.ok, played.trace.errors
    assert (played.trace.num_turns, len(played.trace.calls), len(played.requests)) == (1, 1, 1)
    assert played.requests[0].body["messages"] == [{"role": "user", "content": "Do it.\n"}]
    assert played.seen.startswith("run --format json --title rollout --dir /app\n" * 2 + "Do it.\n")
    assert "sleep 1000" not in played.seen
    record = played.record
    assert (record["session_id"], record["segments"], record["parked_starts"]) == ("ses_0000000002", 1, 1)
    found = [words for words in ("ses_0000000001", "ses_0000000002", "start 1") if words in record["log_tail"]]
    assert found == ["ses_0000000002"]


async def test_a_start_that_parks_twice_is_a_harness_error_that_says_what_to_change(
    fake_program: Path, server: Interception
) -> None:
    played = await play(parking(fake_program, 1, 2), DONE, harness=settings(0.5), interception=server)
    assert played.error.startswith("HarnessError: no model call within 0.5 s of the agent's start")
    assert "--env.agent.harness.startup-time" in played.error
    assert (played.requests, played.scored, played.record["parked_starts"]) == ([], False, 2)


async def test_an_agent_that_ends_by_itself_without_a_call_is_not_started_again(
    fake_program: Path, server: Interception
) -> None:
    options = settings(600.0)
    place = parking(fake_program)
    played = await play(place, DONE, harness=options, interception=server, before="touch /app/silent")
    assert "without a single model call (exit 3)" in played.error
    assert "parked_starts" not in played.record


async def test_a_later_segment_that_parks_says_what_its_user_said_once(
    fake_program: Path, server: Interception
) -> None:
    place, options = parking(fake_program, 2), settings(patience(3.0))
    async with conversation(place, [DONE, DONE], harness=options, interception=server) as (talk, model):
        await talk.turn("First.\n")
        await talk.turn("Second.\n")
    assert talk.trace.ok, talk.trace.errors
    said = [request.body["messages"][0]["content"] for request in model.requests]
    assert said == ["First.\n", "First.\nSecond.\n"]
    assert (talk.trace.info["agent"]["parked_starts"], talk.trace.num_turns) == (1, 2)

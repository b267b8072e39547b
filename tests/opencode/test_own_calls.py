"""Model calls of the agent's programs are told from OpenCode's own, and break nothing but themselves."""

from typing import Any

import pytest
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import ChatRequest, Reply
from verifiers.v1.interception import InterceptionServerConfig

from tests.opencode.test_infrastructure_failures import assert_unscored
from tests.support.places import Confined
from tests.support.replies import bash, faulty, python
from tests.support.rollouts import Played, play

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="Done.")
CALL = """
import json, os, re, urllib.request
config = open(os.environ["OPENCODE_ENV_STATE"] + "/config/opencode/opencode.json").read()
url, key = re.search('"baseURL": *"([^"]+)"', config)[1], re.search('"apiKey": *"([^"]+)"', config)[1]
def ask(text, **headers):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"authorization": "Bearer " + key, "content-type": "application/json", **headers}
    try:
        return urllib.request.urlopen(urllib.request.Request(url + "/chat/completions", body, headers)).status
    except urllib.error.HTTPError as error:
        return error.code
"""
SPY = """
import os
state, uid = os.environ["OPENCODE_ENV_STATE"], os.getuid()
print("file", os.path.exists(state + "/mark"))
pid, programs = os.getppid(), []
while pid > 1:
    programs.append(pid)
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
opencode = [pid for pid in programs if b"--format" in open(f"/proc/{pid}/cmdline", "rb").read()][0]
for name in ("mem", "environ", "maps"):
    try:
        open(f"/proc/{opencode}/{name}", "rb").close()
        print(name, "open")
    except OSError:
        print(name, "closed")
"""


FAILS = faulty("status", status=400, body="no")


async def played(*turns: Reply) -> Played:
    """One rollout behind the environment's own interception: OpenCode's turns in order; what a program asks fails."""
    left = list(turns)

    def policy(request: ChatRequest) -> Reply:
        return FAILS if request.prompt == "the program's" else left.pop(0)

    async with role_interception(InterceptionServerConfig()) as server:
        return await play(Confined(), policy, interception=server)


async def test_a_failed_call_of_a_program_breaks_nothing_and_programs_find_opencodes_mark_nowhere() -> None:
    """The last call of all fails: a program makes it when OpenCode has its last answer."""
    late = "print(ask('the program\\'s'), ask('the program\\'s', **{'x-agent-mark': 'guessed'}))"
    waits = (
        f"{CALL}\nimport time\nif not os.fork():\n    os.setsid()\n"
        f"    os.dup2(os.open('/dev/null', os.O_WRONLY), 1); os.dup2(1, 2)\n"  # else the tool waits for it
        f"    while not os.path.exists('goes-on'): time.sleep(0.05)\n    {late}\n    open('asked', 'w')"
    )
    goes_on = "touch goes-on; until [ -e asked ]; do sleep 0.1; done"
    found = await played(python(SPY), python(waits), bash(goes_on), DONE)
    trace = found.trace
    assert found.tool_results()[0] == "file False\nmem closed\nenviron closed\nmaps closed\n"
    assert trace.ok, trace.errors
    assert (trace.metrics["program_calls"], trace.metrics["model_call_errors"]) == (2.0, 2.0)
    assert [trace.calls[position].error is not None for position in found.record["program_calls"]] == [True, True]
    assert [request.headers.get("x-agent-mark") for request in found.requests] == [None] * len(found.requests)


@pytest.mark.usefixtures("light")
async def test_an_agent_that_leaves_a_failed_call_behind_and_kills_opencode_is_blamed_itself() -> None:
    kills = python(f"{CALL}\nask('the program\\'s')", then="; kill -9 $PPID")
    found = await played(kills, DONE)
    assert found.trace.ok, found.trace.errors
    assert found.trace.metrics["program_calls"] == 1.0
    assert "OpenCode was killed" in found.record["own_error"]


async def test_without_the_plugin_every_call_counts_as_opencodes_and_the_rollout_is_an_error() -> None:
    async with role_interception(InterceptionServerConfig()) as server:
        harness: dict[str, Any] = {"opencode_config": {"plugin": ["file:///nowhere.js"]}}
        found = await play(Confined(), [bash("echo 1"), DONE], harness=harness, interception=server)
    assert found.trace.metrics["program_calls"] == 0.0
    assert_unscored(found, "HarnessError", "did not load the opencode-env plugin")

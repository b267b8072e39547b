"""OpenCode's second segment goes on with its session; what the first leaves behind neither reaches nor changes it."""

from pathlib import Path

import pytest
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import ChatRequest, Reply
from verifiers.v1.interception import InterceptionServerConfig

from tests.opencode.test_own_calls import CALL, FAILS
from tests.opencode.test_pictures import PICTURE, message, texts, urls
from tests.support.places import Place
from tests.support.replies import bash, python
from tests.support.rollouts import assert_extends, conversation

pytestmark = pytest.mark.opencode

TRAPS = (Path(__file__).parent / "probes/traps.py").read_text()
LOOK = """
ls -d /app/ran-* /app/leak-* 2>/dev/null
for place in ~ $TMPDIR/opencode $XDG_DATA_HOME/mine $XDG_CACHE_HOME/mine; do cat $place/notes; done
env | grep -c -e ^GIT_ -e ENV_CODE
echo $HOME
"""
SPY = f"""{CALL}
import glob, time
def secret():
    for path in [os.environ["OPENCODE_ENV_STATE"] + "/mark", *glob.glob("/proc/[0-9]*/environ")]:
        try:
            found = open(path).read()
        except OSError:
            continue
        if path.endswith("/mark") and found:
            return found
        code = re.search("OPENCODE_ENV_CODE=([^\\0]+)", found)
        if code:
            return code[1] + ":mine"
begun = secret()
open("/app/spies", "w").close()
while secret() in (None, begun):
    time.sleep(0.01)
mark = secret()
while os.system("pkill -STOP -f format.json"):
    time.sleep(0.01)
ask("the program's", **{{"x-agent-mark": mark}})
os.system("pkill -KILL -f format.json")
"""
BEHIND = "(setsid python3 /tmp/p.py </dev/null >/dev/null 2>&1 &); until [ -e /app/spies ]; do sleep 0.1; done"


async def test_nothing_of_the_first_segment_configures_the_second_runs_in_it_or_calls_in_its_name(
    confined: Place,
) -> None:
    spies = bash(f"cat > /tmp/p.py <<'END'\n{SPY}\nEND\n{BEHIND}")
    left = [python(TRAPS), spies, Reply(text="First."), bash("sleep 1"), bash(LOOK), Reply(text="Second.")]

    def policy(request: ChatRequest) -> Reply:
        return FAILS if request.prompt == "the program's" else left.pop(0)

    async with (
        role_interception(InterceptionServerConfig()) as server,
        conversation(confined, policy, interception=server, harness={"images": True}) as (talk, model),
    ):
        await talk.turn("Do the first thing.")
        await talk.turn([message("--second thing\n", PICTURE)])
    trace = talk.trace
    assert trace.ok, trace.errors
    laid, _, _, seen = [str(message.content) for message in trace.messages if message.role == "tool"]
    assert laid == "laid\n"
    assert seen == "keptkeptkeptkept0\n/tmp/opencode/home\n"
    bodies = [request.body for request in model.requests]
    assert (left, len(bodies)) == ([], 6)
    assert_extends(bodies)
    assert (trace.num_branches, trace.metrics["program_calls"]) == (1, 0.0)
    said = [one["content"] for one in bodies[-1]["messages"] if one["role"] == "user"]
    assert said[0] == "Do the first thing."
    assert [url for content in said for url in urls(content)] == [PICTURE]
    assert any(texts(content).endswith("--second thing\n") for content in said)

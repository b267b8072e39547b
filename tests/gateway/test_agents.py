"""Attacks by an agent's own program, from inside the real sandbox, and by the agent itself: the light program."""

import sys
from collections.abc import Sequence

import pytest
from opencode_env.cli_agent.interception import GatewayConfig, call_limits
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import Reply
from verifiers.v1.interception import InterceptionServerConfig

from tests.support.places import Confined
from tests.support.replies import bash
from tests.support.rollouts import Played, play

pytestmark = pytest.mark.usefixtures("light_opencode")

PROGRAM = """
import concurrent.futures, json, os, urllib.error, urllib.request
config = json.load(open(os.environ["XDG_CONFIG_HOME"] + "/opencode/opencode.json"))
options = config["provider"]["intercepted"]["options"]
def ask(body, path="/chat/completions"):
    headers = {"Authorization": "Bearer " + options["apiKey"], "Content-Type": "application/json"}
    request = urllib.request.Request(options["baseURL"] + path, body, headers)
    try:
        return urllib.request.urlopen(request, timeout=600).status
    except urllib.error.HTTPError as error:
        return error.code
def chat(*messages, **more):
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": m} for m in messages], **more}).encode()
"""


def runs(attack: str) -> Reply:
    """A turn whose program attacks with `ask` and `chat`."""
    return bash(f"cat >attack.py <<'EOF'\n{PROGRAM}\n{attack}\nEOF\npython3 attack.py")


async def attacked(script: Sequence[Reply], gateway: GatewayConfig | None = None, **settings: object) -> Played:
    """A rollout whose agent plays the script."""
    async with role_interception(InterceptionServerConfig(), gateway=gateway) as server:
        return await play(Confined(), script, interception=server, settings=settings)


async def test_a_program_that_sends_what_no_provider_takes_makes_no_error_of_the_rollout() -> None:
    attack = (
        "far = [{'type': 'image_url', 'image_url': {'url': 'http://127.0.0.1:1/'}}]\n"
        "many = b'{\"messages\":[' + b'[],' * 10**6\n"
        "bodies = [b'{', b'[]', b'null', b'[' * 100000, chat(*[''] * 32000), chat(far), many]\n"
        "print(*map(ask, bodies), ask(chat('x'), '/responses'), ask(chat('x'), '/messages'))"
    )
    played = await attacked([runs(attack), Reply(text="done")])
    assert played.trace.ok, played.trace.errors
    assert played.tool_results()[0].strip() == "400 400 400 400 400 400 400 404 404"
    assert (played.trace.num_turns, played.scored) == (2, True)
    assert [call.error for call in played.trace.calls] == [None, None]
    assert sum(played.trace.info["gateway"]["refused"].values()) == 9


async def test_a_program_of_many_calls_at_once_gets_no_more_turns_than_there_are() -> None:
    attack = (
        "with concurrent.futures.ThreadPoolExecutor(100) as pool:\n"
        "    print(sorted(pool.map(ask, [chat(f'call {n}') for n in range(100)])))"
    )
    played = await attacked([runs(attack), *[Reply(text="done")] * 100], max_turns=3)
    assert played.trace.ok, played.trace.errors
    assert played.trace.num_turns == len(played.requests) == 3
    assert played.trace.stop_condition == "max_turns"


async def test_an_agent_whose_own_request_outgrows_the_bounds_is_scored() -> None:
    grows = bash("head -c 60000 /dev/zero | tr '\\0' x")
    played = await attacked([grows, *[Reply(text="done")] * 3], GatewayConfig(max_body=50_000))
    assert played.trace.ok, played.trace.errors
    assert (played.trace.stop_condition, played.scored) == ("request_refused", True)
    assert [call.error for call in played.trace.calls] == [None]
    assert "larger than" in played.trace.info["gateway"]["last_refused"]


async def test_programs_that_fill_the_trace_stop_a_rollout_that_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = "print(*(ask(chat(f'{n}' + 'x' * 3000000, 'say it')) for n in range(8)))"
    script = [runs(attack), *[Reply(text="done")] * 8]
    # Without the digests: the bound alone.
    with monkeypatch.context() as patch:
        patch.setattr(call_limits, "MAX_PROGRAM_TEXT", sys.maxsize)
        played = await attacked(script, GatewayConfig(max_trace=10_000_000))
    assert played.trace.ok, played.trace.errors
    assert (played.trace.stop_condition, played.scored) == ("max_trace", True)
    assert len(played.trace.model_dump_json()) < 15_000_000
    # With them nothing is full, and each is known.
    played = await attacked(script, GatewayConfig(max_trace=10_000_000))
    assert (played.trace.ok, played.scored) == (True, True)
    assert played.tool_results()[0].split() == ["200"] * 8
    assert len(played.trace.model_dump_json()) < 1_000_000

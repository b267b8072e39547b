"""The light program that takes OpenCode's place in tests is, to an environment, what OpenCode is."""

from contextlib import nullcontext
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import Reply, ScriptedModel
from verifiers.v1.interception import InterceptionServerConfig

from tests.support.light_opencode import light_opencode_in_place
from tests.support.replies import bash, call, faulty
from tests.support.rollouts import policy_of
from tests.support.seats import seated

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

STEPS = [
    bash("echo one; echo two >&2; cd /; exit 3"),
    bash("setsid sleep 600 >/dev/null 2>&1 & echo ~ $PWD; cat; env | grep -c -e ^GIT_ALLOW -e ^OPENCODE_ENV_CODE"),
    Reply(text="so"),
    bash("seq 3 > made; cat made"),
    call("nothing"),
    faulty("status", status=404, body="no"),
]


async def played(light: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What an environment sees of two segments, the last of which fails; and what the model is asked."""
    with light_opencode_in_place() if light else nullcontext():
        config = InterceptionServerConfig()
        async with ScriptedModel(policy_of(STEPS)) as model, role_interception(config) as interception:
            client = vf.EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
            async with seated(client, interception, recursive=False, system_prompt="Be kind.") as seats:
                await seats.main_agent.turn("begin")
                await seats.main_agent.turn("go on")
            trace = seats.main
    (_, system), *said = [(node.message.role, str(node.message.content)) for node in trace.nodes]
    record = trace.info["agent"]
    seen = {
        "messages": [(role, text) for role, text in said if "unavailable" not in text],
        "calls": [(one.finish_reason, one.node is None) for one in trace.calls],
        "record": {name: record[name] for name in ("exit_code", "outcome", "segments")},
        "branches": trace.num_branches,
        "metrics": {name: value for name, value in trace.metrics.items() if "tokens" not in name},
        "appended": system.endswith("\nBe kind."),
        "session": str(record["session_id"]).startswith("ses_"),
    }
    return seen, [dict(request.body) for request in model.requests]


async def test_an_environment_cannot_tell_the_light_program_from_opencode() -> None:
    light, asked_by_light = await played(light=True)
    real, asked_by_real = await played(light=False)
    assert light == real
    assert list(map(set, asked_by_light)) == list(map(set, asked_by_real))

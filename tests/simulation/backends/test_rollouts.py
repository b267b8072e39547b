"""Tool backends in rollouts: per rollout and shared, hostile agents, failures, nothing left."""

import asyncio
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, Script, ScriptPolicy
from opencode_env.tool_backends.feature import BackendTools
from rollout_sandbox.podman import PodmanConfig

from tests.simulation.backends.surroundings import (
    TOKEN,
    InstanceApi,
    instance,
    notes_at,
    program,
    programs_here,
    write_file,
)
from tests.simulation.backends.test_servers import remote
from tests.simulation.episodes import problems, row, serving, tool_results
from tests.support.light_opencode import REAL
from tests.support.replies import bash, call
from tests.support.rows import script
from tests.support.user_home import closed_port
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("light_opencode")

DONE = Reply(text="done")


async def test_each_rollout_has_a_program_of_its_own_and_all_share_one_elsewhere(tmp_path: Path) -> None:
    port = closed_port()
    far = {**remote(port, TOKEN), "backend_name_ref": "far", "instance_scoping": "shared_global"}
    file = write_file(tmp_path / "backends.yaml", program("my notes"), far)
    look = bash("cat /tmp/opencode/config/opencode/* /tmp/opencode/*.json /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")

    def notes(name: str) -> Script:
        mine, ours = call("my_notes_add_note", text=f"mine {name}"), call("far_add_note", text=f"ours {name}")
        return script(name, mine, ours, call("my_notes_refuse"), look, DONE)

    policy = ScriptPolicy(notes("one"), notes("two"))
    async with (
        notes_at(port),
        serving(tmp_path, policy, row("one"), row("two"), backends={"file": str(file)}) as served,
    ):
        first, second = await asyncio.gather(served.play(0), served.play(1))
    assert problems(first) + problems(second) == []
    shared = []
    for name, episode in (("one", first), ("two", second)):
        (trace,) = episode.traces
        mine, ours, refused, seen = tool_results(trace)
        assert mine == f"1 notes: mine {name}"
        shared.append(ours)
        assert "Error executing tool refuse" in refused
        assert "mcp" in seen
        assert TOKEN not in seen
        assert str(port) not in seen
        assert trace.reward == 1.0
        tallies = {key: (tally["calls"], tally["errors"]) for key, tally in trace.info["tool_backends"].items()}
        assert tallies == {"my notes": (2, 1), "far": (1, 0)}
    assert sorted(text.partition(" ")[0] for text in shared) == ["1", "2"]
    await until(lambda: programs_here() == [])


@pytest.mark.parametrize("tool", ["hang", "die"])
async def test_a_backend_that_fails_is_an_error_of_the_rollout_and_no_reward(tmp_path: Path, tool: str) -> None:
    file = write_file(tmp_path / "backends.yaml", program())
    policy = ScriptPolicy.of(call(f"notes_{tool}"), bash("touch /app/on"), DONE)
    async with serving(tmp_path, policy, backends={"file": str(file), "call_timeout": 2.0}) as served:
        episode = await served.play()
    (trace,) = episode.traces
    assert (trace.ok, trace.stop_condition) == (False, "tool_backend_failed")
    assert [error.type for error in trace.errors] == ["BrokenBackendError"]
    assert "backend 'notes'" in trace.errors[0].message
    assert set(trace.rewards.values()) <= {None}
    assert trace.num_turns == 1
    await until(lambda: programs_here() == [])


async def test_a_backend_that_does_not_start_is_an_error_of_the_rollout_and_the_others_are_removed(
    tmp_path: Path,
) -> None:
    async with InstanceApi() as api:
        broken = program("broken", command=["sh", "-c", "echo no licence >&2; sleep 1; exit 3"])
        apis = {"here": api.config}
        file = write_file(tmp_path / "backends.yaml", program(), instance("far"), broken, global_remote_apis=apis)
        async with serving(tmp_path, ScriptPolicy.of(DONE), backends={"file": str(file)}) as served:
            episode = await served.play()
        assert [error.rpartition("it said: ")[2] for error in problems(episode)] == ["no licence"]
        assert served.requests == []
        assert api.alive == {}
    await until(lambda: programs_here() == [])


async def test_from_the_sandbox_no_other_way_leads_to_a_backend_and_a_way_ends_with_its_rollout(tmp_path: Path) -> None:
    file = write_file(tmp_path / "backends.yaml", program())
    ask = (
        "url=$(grep -rhoE 'http://127.0.0.1:[0-9]+/[A-Za-z0-9_-]+/mcp' /tmp/opencode/config 2>/dev/null | head -1); "
        "[ -n \"$url\" ] || url=$(grep -rhoE 'http://127.0.0.1:[0-9]+/[A-Za-z0-9_-]{32}/mcp' /tmp/opencode | head -1); "
        "echo url=$url; "
        "for path in '' /mcp /x/mcp /notes/mcp /docs /openapi.json; do "
        "curl -s -o /dev/null -w '%{http_code} ' $(echo $url | cut -d/ -f1-3)$path; done; echo; "
        "head -c 5000000 /dev/zero | curl -s -o /dev/null -w '%{http_code}' -H 'content-type: application/json' "
        "--data-binary @- $url; echo $url > /tmp/url"
    )
    own = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add_note","arguments":{"text":"by hand"}}}'
    by_hand = (
        "curl -s -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' "
        f"-d '{own}' $(cat /tmp/url)"
    )
    policy = ScriptPolicy.of(bash(ask), call("notes_add_note", text="still here"), bash(by_hand), DONE)
    async with serving(tmp_path, policy, backends={"file": str(file)}) as served:
        episode = await served.play()
        (trace,) = episode.traces
        assert problems(episode) == []
        seen, noted, answered = tool_results(trace)
        assert "2 notes: still here, by hand" in answered
        assert trace.info["tool_backends"]["notes"]["calls"] == 2
        assert [line.split() for line in seen.splitlines()[1:3]] == [["404"] * 6, ["413"]]
        assert noted == "1 notes: still here"
        (backends,) = (feature for feature in served.env._features if isinstance(feature, BackendTools))
        assert backends._backends is not None
        assert backends._backends._bridge._routes == {}


@pytest.mark.podman
async def test_a_rollout_in_a_container_reaches_its_backends(
    tmp_path: Path, podman_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_ENV_CACHE", REAL["OPENCODE_ENV_CACHE"])
    file = write_file(tmp_path / "backends.yaml", program())
    runtime = PodmanConfig(image=podman_image).model_dump(include={"type", "import_path", "image"})
    policy = ScriptPolicy.of(call("notes_add_note", text="from a container"), DONE)
    async with serving(
        tmp_path, policy, backends={"file": str(file)}, agent={"runtime": runtime, "harness": {"id": "opencode-env"}}
    ) as served:
        episode = await served.play()
    (trace,) = episode.traces
    assert problems(episode) == []
    assert tool_results(trace) == ["1 notes: from a container"]

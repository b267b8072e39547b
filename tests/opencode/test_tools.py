"""OpenCode's own tools, a taskset's tool servers and skills work in every sandbox, and nothing waits for an answer."""

from pathlib import Path

import pytest
from agent_sandbox.confined import Bind, LocalSandboxConfig
from opencode_env.scripted_model import Reply

from tests.opencode.tally_tools import ColocatedTallyTask, TallyTask
from tests.support.machine import assert_no_longer
from tests.support.places import Confined, Place, Prime
from tests.support.prime_api import NO_TUNNEL
from tests.support.replies import bash, call
from tests.support.rollouts import Played, play

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="Done.")
ROOT = Path(__file__).parents[2]
FILES = (
    "mkdir -p /app/sub; echo needle > /app/a.py; echo needle > /app/sub/b.txt; ln -s /etc/hostname /app/name; "
    "echo SECRET=1 | tee /app/.env > /app/sub/.env.local"
)
SKILL = "---\nname: greeting\ndescription: How to greet.\n---\nSay good day.\n"


async def test_the_built_in_tools_work_and_no_path_outside_the_work_directory_makes_them_wait(place: Place) -> None:
    played = await play(
        place,
        [
            call("glob", pattern="**/*.py"),
            call("grep", pattern="needle", include="*.txt"),
            call("read", filePath="/etc/hostname"),
            call("read", filePath="/app/name"),
            call("read", filePath="/app/.env"),
            call("read", filePath="/app/sub/.env.local"),
            call("write", filePath="/tmp/outside.txt", content="written outside"),
            call("edit", filePath="/app/a.py", oldString="needle", newString="pin"),
            bash("cat /tmp/outside.txt", workdir="/"),
            call("webfetch", url="http://127.0.0.1:1/", format="text"),
            *[bash("true")] * 4,
            DONE,
        ],
        before=FILES,
        after="cat /app/a.py",
    )
    assert played.trace.ok, played.trace.errors
    glob, grep, hostname, link, dotenv, nested, _, _, outside, fetched, *_ = played.tool_results()
    assert glob.strip() == "/app/a.py"
    assert "Found 1 match" in grep
    assert "/app/sub/b.txt:\n  Line 1: needle" in grep
    assert "1: " in hostname
    assert "1: " in link
    assert "SECRET=1" in dotenv
    assert "SECRET=1" in nested
    assert outside == "written outside"
    assert "rror" in fetched
    assert played.seen == "pin\n"
    assert_no_longer(played.seconds, 60)
    assert played.trace.num_branches == 1
    counted = {name: count for name, count in played.trace.metrics.items() if name.endswith("_calls") and count}
    assert counted == {
        "total_tool_calls": 14,
        "has_tool_calls": 1,
        "bash_calls": 5,
        "read_calls": 4,
        "glob_calls": 1,
        "grep_calls": 1,
        "write_calls": 1,
        "edit_calls": 1,
        "webfetch_calls": 1,
    }


def assert_tallied(played: Played) -> None:
    assert played.trace.ok, played.trace.errors
    offered = {tool["function"]["name"] for tool in played.requests[0].body["tools"]}
    assert "tally_add" in offered
    assert played.tool_results() == ["the total is 2", "the total is 42"]
    assert played.trace.metrics["total"] == 42.0


ADDING = [call("tally_add", number=2), call("tally_add", number=40), DONE]


async def test_a_tool_server_on_the_host_is_offered_and_can_be_called(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(place, Prime):
        pytest.skip(NO_TUNNEL)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert_tallied(await play(place, ADDING, task=TallyTask))


async def test_a_tool_server_in_the_agents_own_sandbox_can_be_called() -> None:
    place = Confined(LocalSandboxConfig(python_env=True), (Bind(ROOT / "tests", "/srv/source/tests"),))
    env = {"PYTHONPATH": "/srv/source"}
    played = await play(place, ADDING, task=ColocatedTallyTask, env=env)
    assert_tallied(played)


async def test_a_skill_is_offered_and_can_be_read(confined: Place, tmp_path: Path) -> None:
    skill = tmp_path / "greeting"
    skill.mkdir()
    (skill / "SKILL.md").write_text(SKILL)
    (skill / "greet.sh").write_text("#!/bin/sh\necho good day\n")
    (skill / "greet.sh").chmod(0o755)
    run = bash("/tmp/opencode/config/opencode/skills/greeting/greet.sh")
    played = await play(confined, [call("skill", name="greeting"), run, DONE], skills=[skill])
    assert played.trace.ok, played.trace.errors
    assert "<name>greeting</name>" in played.requests[0].body["messages"][0]["content"]
    text, greeted = played.tool_results()
    assert "Say good day." in text
    assert greeted == "good day\n"
    assert played.trace.metrics["skill_calls"] == 1.0

"""OpenCode's own tools, a taskset's tool servers and skills work in every sandbox, and nothing waits for an answer;
and what a normal rollout leaves on its trace."""

from pathlib import Path

import pytest
from agent_sandbox.confined import Bind, LocalSandboxConfig
from agent_sandbox.conformance.promises import LIST_PROCESSES
from opencode_env.scripted_model import Reply

from tests.opencode.tally_tools import ColocatedTallyTask, TallyTask
from tests.opencode.test_time_limit import DAEMONS, survivors
from tests.support.machine import assert_no_longer
from tests.support.places import Confined, Place, Prime
from tests.support.replies import bash, call
from tests.support.rollouts import Played, play
from tests.support.tasks import SeenTask

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="Done.")
ROOT = Path(__file__).parents[2]
FILES = (
    "mkdir -p /app/sub; echo needle > /app/a.py; echo needle > /app/sub/b.txt; ln -s /etc/hostname /app/name; "
    "echo SECRET=1 | tee /app/.env > /app/sub/.env.local"
)
SKILL = "---\nname: greeting\ndescription: How to greet.\n---\nSay good day.\n"


def skill(tmp_path: Path) -> Path:
    """A skill with a program."""
    made = tmp_path / "greeting"
    made.mkdir()
    (made / "SKILL.md").write_text(SKILL)
    (made / "greet.sh").write_text("#!/bin/sh\necho good day\n")
    (made / "greet.sh").chmod(0o755)
    return made


BUILT_IN = [
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
]
"""Without a path outside the work directory that would make them wait."""
GREETING = [call("skill", name="greeting"), bash("$OPENCODE_ENV_STATE/config/opencode/skills/greeting/greet.sh")]
ADDING = [call("tally_add", number=2), call("tally_add", number=40)]
COUNTED = {
    "total_tool_calls": 15,
    "has_tool_calls": 1,
    "bash_calls": 5,
    "read_calls": 4,
    "glob_calls": 1,
    "grep_calls": 1,
    "write_calls": 1,
    "edit_calls": 1,
    "webfetch_calls": 1,
    "skill_calls": 1,
}


async def test_a_normal_rollout_uses_every_kind_of_tool_and_leaves_one_branch_and_a_complete_record(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With OpenCode's own tools, a skill, a tool server on the host, and processes that the agent leaves behind."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tallies = not isinstance(place, Prime)  # see NO_TUNNEL
    played = await play(
        place,
        [*BUILT_IN, *GREETING, bash(DAEMONS + "echo ok"), *[bash("true")] * 2, *ADDING * tallies, DONE],
        before=f"{FILES}; : > /app/late",
        after=f"cat /app/a.py; {LIST_PROCESSES}",
        task=TallyTask if tallies else SeenTask,
        skills=[skill(tmp_path)],
        harness={"log_dir": tmp_path / "logs"},
    )
    assert played.trace.ok, played.trace.errors
    assert_worked(played)
    assert_greeted(played)
    if tallies:
        assert_tallied(played, played.tool_results()[-2:])
    assert_recorded(played, tmp_path / "logs" / f"{played.trace.id}.log")
    changed, *processes = played.seen.splitlines()
    assert changed == "pin"
    assert survivors("\n".join(processes)) == []
    counted = {name: count for name, count in played.trace.metrics.items() if name.endswith("_calls") and count}
    added = {"total_tool_calls": 17} if tallies else {}
    assert counted == {**COUNTED, **added}
    assert_no_longer(played.seconds, 60)


def assert_worked(played: Played) -> None:
    """The built-in tools did what they should."""
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


def assert_greeted(played: Played) -> None:
    """The skill was offered, read and run."""
    assert "<name>greeting</name>" in played.requests[0].body["messages"][0]["content"]
    text, greeted = played.tool_results()[len(BUILT_IN) :][:2]
    assert "Say good day." in text
    assert greeted == "good day\n"


def assert_tallied(played: Played, results: list[str]) -> None:
    """The tool server was offered, and could be called."""
    assert played.trace.ok, played.trace.errors
    offered = {tool["function"]["name"] for tool in played.requests[0].body["tools"]}
    assert "tally_add" in offered
    assert results == ["the total is 2", "the total is 42"]
    assert played.trace.metrics["total"] == 42.0


def assert_recorded(played: Played, log: Path) -> None:
    """The trace is that of a rollout with nothing special, and the whole log was kept."""
    trace, record = played.trace, played.record
    assert (trace.num_branches, trace.stop_condition, trace.is_truncated) == (1, "agent_completed", False)
    assert trace.num_turns == len(played.requests)
    assert trace.metrics["agent_error"] == trace.metrics["agent_timeout"] == 0.0
    assert trace.reward == 1.0
    told = {name: record[name] for name in ("version", "outcome", "exit_code", "segments")}
    assert told == {"version": "1.18.33", "outcome": "completed", "exit_code": 0, "segments": 1}
    assert 0 < record["duration"] < played.seconds
    assert '"type":"step_finish"' in record["log_tail"]
    assert len(record["log_tail"].encode()) <= 4000
    assert record["log_file"] == str(log)
    assert log.read_text().startswith('{"type":"step_start"')


async def test_a_tool_server_in_the_agents_own_sandbox_can_be_called() -> None:
    place = Confined(LocalSandboxConfig(python_env=True), (Bind(ROOT / "tests", "/srv/source/tests"),))
    env = {"PYTHONPATH": "/srv/source"}
    played = await play(place, [*ADDING, DONE], task=ColocatedTallyTask, env=env)
    assert_tallied(played, played.tool_results())

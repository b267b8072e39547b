"""OpenCode's own tools, a taskset's tool servers and skills work in every sandbox, and nothing waits for an answer;
and what a normal rollout leaves on its trace."""

import base64
import json
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply
from rollout_sandbox.confined import Bind, LocalSandboxConfig
from rollout_sandbox.conformance.subject import LIST_PROCESSES

from tests.opencode.tally_tools import ColocatedTallyTask, TallyTask
from tests.opencode.test_pictures import PIXEL
from tests.opencode.test_time_limit import DAEMONS, survivors
from tests.support.machine import assert_no_longer
from tests.support.places import Confined, Place, Prime
from tests.support.replies import bash, call
from tests.support.rollouts import Played, play
from tests.support.tasks import PROMPT, SeenTask

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="Done.")
ROOT = Path(__file__).parents[2]
FILES = (
    "mkdir -p /app/sub; echo needle > /app/a.py; echo needle > /app/sub/b.txt; ln -s /etc/hostname /app/name; "
    "echo SECRET=1 | tee /app/.env > /app/sub/.env.local; "
    "for d in 3 1 2 5 4; do mkdir -p /app/many/d$d; for n in $(seq 1 40); do echo hay > /app/many/d$d/f$n.txt; "
    "done; done; mkdir /app/few; for n in 9 3 5 1; do echo pin > /app/few/$n.txt; done"
)
MANY = sorted((f"/app/many/d{d}/f{n}.txt" for d in range(1, 6) for n in range(1, 41)), key=lambda path: path.split("/"))
FEW = [f"/app/few/{n}.txt" for n in (1, 3, 5, 9)]
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
SEARCHES = [
    call("glob", pattern="many/**/*.txt"),
    call("grep", pattern="hay"),
    call("glob", pattern="few/*.txt"),
    call("grep", pattern="pin", include="?.txt"),
    bash("rg --no-filename --sortr=path -e pin -e nothing few; rg --version | head -c 7"),
]
DRAW = bash(f"echo {base64.b64encode(PIXEL).decode()} | base64 -d >/app/pixel.png; cp /app/pixel.png /app/plain.txt")
PICTURES = [DRAW, call("read", filePath="/app/pixel.png"), call("read", filePath="/app/plain.txt")]
ADDING = [call("tally_add", number=2), call("tally_add", number=40)]
COUNTED = {
    "total_tool_calls": 23,
    "has_tool_calls": 1,
    "bash_calls": 7,
    "read_calls": 6,
    "glob_calls": 3,
    "grep_calls": 3,
    "write_calls": 1,
    "edit_calls": 1,
    "webfetch_calls": 1,
    "skill_calls": 1,
}


@pytest.fixture(scope="module")
def found() -> set[tuple[str, ...]]:
    """What the searches gave in each sandbox."""
    return set()


async def test_a_normal_rollout_uses_every_kind_of_tool_and_leaves_one_branch_and_a_complete_record(
    place: Place, found: set[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With OpenCode's own tools, a skill, a tool server on the host, and processes that the agent leaves behind."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tallies = not isinstance(place, Prime)  # see NO_TUNNEL
    leaving = [bash(DAEMONS + "echo ok"), *[bash("true")] * 2]
    played = await play(
        place,
        [*BUILT_IN, *GREETING, *SEARCHES, *PICTURES, *leaving, *ADDING * tallies, DONE],
        before=f"{FILES}; : > /app/late",
        after=f"cat /app/a.py; {LIST_PROCESSES}",
        task=TallyTask if tallies else SeenTask,
        skills=[skill(tmp_path)],
        harness={"log_dir": tmp_path / "logs"},
    )
    assert played.trace.ok, played.trace.errors
    assert_worked(played)
    assert_greeted(played)
    assert_found(played, found)
    assert_no_picture_is_sent(played)
    if tallies:
        assert_tallied(played, played.tool_results()[-2:])
    assert_recorded(played, tmp_path / "logs" / f"{played.trace.id}.log")
    changed, _, processes = played.seen.partition("\n")
    assert (changed, survivors(processes)) == ("pin", [])
    counted = {name: count for name, count in played.trace.metrics.items() if name.endswith("_calls") and count}
    assert counted == COUNTED | {"total_tool_calls": COUNTED["total_tool_calls"] + 2 * tallies}
    assert_no_longer(played.seconds, 60)


def assert_worked(played: Played) -> None:
    """The built-in tools did what they should."""
    glob, grep, hostname, link, dotenv, nested, _, _, outside, fetched, *_ = played.tool_results()
    assert glob.strip() == "/app/a.py"
    assert "Found 1 match" in grep
    assert "/app/sub/b.txt:\n  Line 1: needle" in grep
    assert all("1: " in one for one in (hostname, link)), (hostname, link)
    assert all("SECRET=1" in one for one in (dotenv, nested)), (dotenv, nested)
    assert outside == "written outside"
    assert "rror" in fetched


def assert_greeted(played: Played) -> None:
    """The skill was offered, read and run."""
    system, user = played.requests[0].body["messages"]
    assert system["content"].startswith("You are opencode")
    assert system["content"].endswith("</available_skills>")
    assert "<name>greeting</name>" in system["content"]
    assert user == {"role": "user", "content": PROMPT}
    text, greeted = played.tool_results()[len(BUILT_IN) :][:2]
    assert "Say good day." in text
    assert greeted == "good day\n"


def files(text: str) -> list[str]:
    """The paths of a result, in its order."""
    return [line.removesuffix(":") for line in text.splitlines() if line.startswith("/app/")]


def assert_found(played: Played, everywhere: set[tuple[str, ...]]) -> None:
    """The searches gave the same text as in every other sandbox, though only the first of many hits are shown."""
    everywhere.add(texts := tuple(played.tool_results()[len(BUILT_IN) + len(GREETING) :][: len(SEARCHES)]))
    assert len(everywhere) == 1
    many_files, many_lines, few_files, few_lines, own = texts
    assert files(many_files) == files(many_lines) == MANY[:100]
    assert files(few_files) == files(few_lines) == FEW
    assert own == "pin\n" * 4 + "ripgrep"


def assert_no_picture_is_sent(played: Played) -> None:
    """An endpoint that does not say that it takes pictures is sent none that is read, and its model is told."""
    last = json.dumps(played.requests[-1].body["messages"])
    assert "image_url" not in last
    assert "does not support image input" in last


def assert_tallied(played: Played, results: list[str]) -> None:
    """The tool server was offered, and could be called."""
    assert played.trace.ok, played.trace.errors
    assert "tally_add" in {tool["function"]["name"] for tool in played.requests[0].body["tools"]}
    assert results == ["the total is 2", "the total is 42"]
    assert played.trace.metrics["total"] == 42.0


def assert_recorded(played: Played, log: Path) -> None:
    """The trace is that of a rollout with nothing special, and the whole log was kept."""
    trace, record = played.trace, played.record
    assert (trace.num_branches, trace.stop_condition, trace.is_truncated) == (1, "agent_completed", False)
    assert (trace.num_turns, trace.reward) == (len(played.requests), 1.0)
    assert trace.metrics["agent_error"] == trace.metrics["agent_timeout"] == 0.0
    told = {name: record[name] for name in ("version", "outcome", "exit_code", "segments")}
    assert told == {"version": "1.18.33", "outcome": "completed", "exit_code": 0, "segments": 1}
    assert 0 < record["duration"] < played.seconds
    assert '"type":"step_finish"' in record["log_tail"]
    assert len(record["log_tail"].encode()) <= 4000
    assert record["log_file"] == str(log)
    assert log.read_text().startswith('{"type":"step_start"')


@pytest.mark.usefixtures("light")
async def test_a_tool_server_in_the_agents_own_sandbox_can_be_called() -> None:
    place = Confined(LocalSandboxConfig(python_env=True), (Bind(ROOT / "tests", "/srv/source/tests"),))
    env = {"PYTHONPATH": "/srv/source"}
    played = await play(place, [*ADDING, DONE], task=ColocatedTallyTask, env=env)
    assert_tallied(played, played.tool_results())

"""What the model server receives is decided by our configuration alone, and is the same in every run."""

import json
import re

import pytest
import pytest_asyncio
from opencode_env.scripted_model import RecordedRequest, Reply

from tests.support.places import Confined
from tests.support.replies import bash
from tests.support.rollouts import MODEL, Played, play

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="Done.")
TRAPS = "{env:HOME} {file:/etc/passwd} $HOME `id` $(id) @/etc/passwd \\u2028 \u2028 é \"quoted\" 'single'"
HOSTILE = r"""
mkdir -p /app/.opencode/agent /app/.opencode/plugin /app/.opencode/command /app/.claude/skills/evil ~/.config/opencode
evil='{"model":"intercepted/evil","instructions":["/app/EVIL.md"],"permission":"ask","agent":{"build":{"prompt":"EVIL"}}'
evil="$evil"',"provider":{"intercepted":{"options":{"baseURL":"http://127.0.0.1:1/v1"}}}}'
for file in /app/opencode.json /app/opencode.jsonc /app/.opencode/opencode.json ~/.config/opencode/opencode.json; do
    printf '%s' "$evil" > "$file"
done
printf EVIL | tee /app/AGENTS.md /app/CLAUDE.md /app/CONTEXT.md /app/EVIL.md ~/.config/opencode/AGENTS.md >/dev/null
printf -- '---\nname: evil\ndescription: EVIL\n---\nEVIL' > /app/.opencode/agent/evil.md
cp /app/.opencode/agent/evil.md /app/.claude/skills/evil/SKILL.md
echo 'throw new Error("EVIL")' > /app/.opencode/plugin/evil.js
"""
SAMPLING = {"temperature": 0.25, "top_p": 0.5, "max_tokens": 777, "seed": 11}
HARNESS = {
    "system_prompt": f"Appended {TRAPS}",
    "task_system_prompt": "From the harness.",
    "disabled_tools": ["WebFetch", "todowrite", "question", "task"],
}
PROMPT_OF_TRAPS = f"/init --help\n  {TRAPS}\n\n"
LONG_PROMPT = "Do the first thing." + "".join(f"{number} é\u2028\n" for number in range(100_000))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs() -> list[Played]:
    """Two runs of one task with everything set, in a work directory full of configuration that is not ours."""
    return [
        await play(
            Confined(),
            [bash("env"), DONE],
            harness=HARNESS,
            settings={"sampling": SAMPLING},
            env={"OPENCODE_CONFIG_CONTENT": '{"model":"evil/evil"}', "OPENCODE_PERMISSION": '{"bash":"deny"}'},
            before=HOSTILE,
            prompt=PROMPT_OF_TRAPS,
            system_prompt=f"From the task {TRAPS}",
        )
        for _ in range(2)
    ]


@pytest.fixture
def first(runs: list[Played]) -> RecordedRequest:
    """The first request of the first run."""
    return runs[0].requests[0]


def system(request: RecordedRequest) -> str:
    messages = request.body["messages"]
    assert [message["role"] for message in messages[:2]] == ["system", "user"]
    return str(messages[0]["content"])


def test_a_rollout_in_a_hostile_work_directory_is_sound_and_asks_once_a_turn_and_for_no_title(
    runs: list[Played],
) -> None:
    for played in runs:
        assert played.trace.ok, played.trace.errors
        assert (played.trace.num_branches, len(played.requests)) == (1, 2)


def test_nothing_that_the_task_left_in_the_sandbox_reaches_the_model(runs: list[Played]) -> None:
    for played in runs:
        assert "EVIL" not in json.dumps([request.body for request in played.requests])
        assert all(request.body["model"] == MODEL for request in played.requests)


def test_the_prompt_arrives_byte_for_byte(first: RecordedRequest) -> None:
    assert first.body["messages"][1]["content"] == PROMPT_OF_TRAPS


def test_the_texts_of_the_system_prompt_come_last_in_order_and_nothing_in_them_is_substituted(
    first: RecordedRequest,
) -> None:
    assert system(first).startswith("You are opencode")
    assert system(first).endswith(f"\nAppended {TRAPS}\n\nFrom the harness.\n\nFrom the task {TRAPS}")
    assert "root:x:0:0" not in system(first)


def test_first_requests_are_identical_in_every_byte_but_the_session(runs: list[Played]) -> None:
    bodies = [json.dumps(played.requests[0].body) for played in runs]
    assert bodies[0] == bodies[1]
    # The mark is the rollout's own, and goes no further than the interception.
    own = ("x-session", "x-agent-mark", "host")
    headers = [{k: v for k, v in played.requests[0].headers.items() if not k.startswith(own)} for played in runs]
    assert headers[0] == headers[1]


def test_nothing_in_the_prompt_changes_from_day_to_day(first: RecordedRequest) -> None:
    assert "date" not in system(first).replace("update", "").replace("validate", "").lower()
    assert not re.search(r"\b20\d\d\b", system(first))


def test_disabled_tools_are_not_offered(first: RecordedRequest) -> None:
    names = {tool["function"]["name"] for tool in first.body["tools"]}
    assert names == {"bash", "edit", "glob", "grep", "read", "skill", "write"}


def test_the_seats_sampling_reaches_the_endpoint(runs: list[Played]) -> None:
    for request in (request for played in runs for request in played.requests):
        sent = {**request.body, "max_tokens": request.body.get("max_completion_tokens", request.body.get("max_tokens"))}
        assert {name: sent[name] for name in SAMPLING} == SAMPLING


def test_the_agents_own_environment_is_the_rollouts(runs: list[Played]) -> None:
    (printed,) = runs[0].tool_results()
    env = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    assert (env["HOME"], env["TMPDIR"]) == ("/tmp/opencode/home", "/tmp/opencode/tmp")
    assert "/opencode/opencode-linux" in env["PATH"]
    assert not {"OPENCODE_CONFIG_CONTENT", "OPENCODE_PERMISSION"} & env.keys()
    assert not [name for name in env if name.startswith(("BUN_JSC_", "BUN_RUNTIME_"))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def other() -> Played:
    """A run with another system prompt, work directory and further configuration, and a prompt of a megabyte."""
    model = {"limit": {"context": 50_000, "output": 1234}}
    extra = {"provider": {"intercepted": {"models": {"gpt-5": model}}}, "agent": {"build": {"tools": {"glob": False}}}}
    harness = {"system_prompt": f"Only this {TRAPS}", "system_prompt_mode": "replace", "prompt_model": "gpt-5"}
    return await play(
        Confined(),
        [bash("pwd"), DONE],
        harness={**harness, "opencode_config": extra, "disabled_tools": None},
        workdir="/tmp/here/and there",
        prompt=LONG_PROMPT,
    )


def test_a_system_prompt_can_replace_the_agents_own(other: Played) -> None:
    prompt = system(other.requests[0])
    assert prompt.startswith(f"Only this {TRAPS}\n")
    assert [words in prompt for words in ("gpt-5", "You are opencode", MODEL)] == [True, False, False]
    assert other.requests[0].body["model"] == MODEL


def test_a_missing_work_directory_is_made(other: Played) -> None:
    assert other.tool_results() == ["/tmp/here/and there\n"]
    assert "Working directory: /tmp/here/and there" in system(other.requests[0])


def test_a_prompt_of_more_than_a_megabyte_arrives_whole(other: Played) -> None:
    assert other.requests[0].body["messages"][1] == {"role": "user", "content": LONG_PROMPT}


def test_further_configuration_reaches_opencode(other: Played) -> None:
    request = other.requests[0]
    names = {tool["function"]["name"] for tool in request.body["tools"]}
    assert request.body.get("max_tokens", request.body.get("max_completion_tokens")) == 1234
    assert "task" in names
    assert "glob" not in names

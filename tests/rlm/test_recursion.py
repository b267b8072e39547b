"""The three ways to recurse, with the real binary in confined sandboxes, and every way in which they go wrong.

The light program plays where what is promised happens outside the sandbox.
"""

from pathlib import Path

import pytest
import pytest_asyncio
from opencode_env.scripted_model import ChatRequest, Fault, FaultKind, Reply

from tests.opencode.test_agent_errors import TRIGGER
from tests.rlm.episodes import Played, play, task
from tests.support.light_opencode import light_opencode_in_place
from tests.support.replies import bash, call, faulty, python
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.waiting import within_a_limit

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="done")


def echo(request: ChatRequest) -> Reply:
    """A sub model that repeats the end of its prompt."""
    return Reply(text=f"echo: {request.user_texts[-1][-60:]}")


def routed(played: Played) -> None:
    """Every call stands on the right trace, under the right model, and the metrics say the same."""
    assert played.episode.ok, played.problems
    metrics = played.main.metrics
    for trace, model in ((played.main, MAIN_MODEL), (played.sub, SUB_MODEL)):
        assert {call.model for call in trace.calls if call.model} == {model}
        answers = [request.reply for request in played.asked(model)]
        assert trace.num_turns == sum(reply is not None and not reply.faults for reply in answers)
    assert played.sub.agent.name == "sub"
    assert metrics["main_turns"] == played.main.num_turns == metrics["num_turns"]
    assert metrics["sub_llm_turns"] == played.sub.num_turns
    assert metrics["main_prompt_tokens"] == sum(c.usage.input_tokens for c in played.main.calls if c.usage)
    assert metrics["sub_llm_completion_tokens"] == sum(c.usage.completion_tokens for c in played.sub.calls if c.usage)
    assert not any("x-rlm" in str(request.headers).lower() for request in played.requests)


SHELL = """\
cat > loop.sh <<'END'
llm argument and more; echo "code $?"
echo from stdin | llm; echo "code $?"
echo text > f.txt; llm -s system -f f.txt question; echo "code $?"
printf '"one"\\n\\n{"prompt": "bad"}\\n{"prompt": "three", "files": ["f.txt"]}\\n' | llm --batch; echo "code $?"
llm bad; echo "code $?"
llm </dev/null; echo "code $?"
echo nonsense | llm --batch; echo "code $?"
END
sh loop.sh 2>&1
"""
REFUSED = {"two": (404, "no such thing"), "bad": (400, "refused"), "work in vain": (400, "the sub model is broken")}
"""Status and body by the prompt of a sub call."""


def _nesting(request: ChatRequest) -> Reply:
    """Starts a sub-agent of its own where it can, and says how that went."""
    if request.turn == 0 and "outer" in request.prompt:
        return task("inner job") if "task" in request.tools else Reply(text="no tool `task`")
    return Reply(text=f"{request.prompt[:5]} done, tools: {'task' in request.tools}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asking(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A rollout that asks with files, in a batch, for each of two files, of which one is missing, and from its shell;
    and starts a sub-agent that fails and one that may start no other; in the end it makes a loop of itself."""

    def sub(request: ChatRequest) -> Reply:
        if request.tools and "outer" in request.prompt:
            return _nesting(request)
        status, body = REFUSED.get(request.prompt, (0, ""))
        faults = (Fault(kind=FaultKind.STATUS, status=status, body=body),) if status else ()
        return Reply(text=f"about {request.prompt}", faults=faults)

    steps = [
        call("llm_subcall", prompt="What is in it?", files=["notes.txt"], system="Be brief."),
        call("llm_subcall", prompts=["one", "two", "three"], files=[]),
        call("llm_subcall", prompt="Q", files=["notes.txt", "/nowhere.txt"], per_file=True),
        bash(SHELL),
        task("work in vain"),
        task("outer job"),
        python(TRIGGER),
        DONE,
    ]
    return await play(tmp_path_factory.mktemp("asking"), steps, sub, setup=["echo 'a secret note' > notes.txt"])


def test_the_tool_answers_one_prompt_and_files_never_enter_the_main_context(asking: Played) -> None:
    routed(asking)
    system, user = asking.asked(SUB_MODEL)[0].body["messages"]
    assert (system["role"], user["role"]) == ("system", "user")
    says = ("What is in it?", "a secret note", '<file path="/app/notes.txt">')
    assert [words for words in says if words not in user["content"]] == []
    assert not any("tools" in r.body for r in asking.asked(SUB_MODEL)[:-2])
    assert "a secret note" not in str(asking.main.messages[0])
    assert asking.main.rewards["exact_answer"] is not None


def test_a_batch_answers_in_order_with_each_failure_in_its_place(asking: Played) -> None:
    first, second, third = asking.tool_results()[1].split("\n\n")
    assert (first, third) == ("[1] about one", "[3] about three")
    assert second.startswith("[2] error: 404")
    assert "no such thing" in second
    metrics = asking.main.metrics
    assert (metrics["sub_llm_calls"], metrics["sub_llm_turns"], metrics["sub_llm_errors"]) == (14, 10, 4)
    assert "no such thing" in asking.main.info["rlm"]["failures"][0]


def test_a_missing_file_is_an_error_in_its_place(asking: Played) -> None:
    first, second = asking.tool_results()[2].split("\n\n[2] ")
    assert first.startswith("[1] about ")
    assert second.startswith("error: ")
    assert "/nowhere.txt" in second


def test_a_sub_trace_that_is_not_included_is_not_trained_and_has_no_reward(asking: Played) -> None:
    assert (asking.sub.agent.trainable, asking.sub.rewards) == (False, {})


def test_the_command_answers_arguments_stdin_and_batches_with_exit_codes(asking: Played) -> None:
    lines = asking.tool_results()[3].splitlines()
    codes = [line.removeprefix("code ") for line in lines if line.startswith("code ")]
    assert codes == ["0", "0", "0", "1", "1", "2", "2"]
    assert lines[:4] == ["about argument and more", "code 0", "about from stdin", ""]
    batch = [line for line in lines if line.startswith("{")]
    assert batch[0] == '{"answer":"about one"}'
    assert batch[1].startswith('{"error":"400: ')
    assert "<file path" in batch[2]


def test_a_failing_sub_agent_is_a_tool_error_that_is_counted_and_visible(asking: Played) -> None:
    assert "broken" in asking.tool_results()[4]
    assert "broken" in asking.main.info["rlm"]["failures"][3]


def test_a_sub_agent_at_the_depth_limit_has_no_tool_to_nest_further(asking: Played) -> None:
    assert "no tool `task`" in asking.tool_results()[5]


def test_a_loop_that_the_agent_has_put_into_opencodes_store_is_ended_and_scored(asking: Played) -> None:
    assert asking.tool_results()[6].strip() == "made"
    trace = asking.main
    assert (asking.problems, trace.stop_condition, trace.reward) == ([], "agent_error", 1.0)
    assert trace.metrics["agent_error_own"] == 1.0
    assert "keeps calling the model without end" in trace.info["agent"]["own_error"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bounded(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A rollout with three sub-agents, of which one concludes at its last turn, one ignores it, and one starts a
    fourth; with long answers, and texts of its own that teach recursion."""

    def sub(request: ChatRequest) -> Reply:
        prompt = request.user_texts[0]
        if "outer" in prompt or "inner" in prompt:
            return _nesting(request)
        if "ignore" in prompt:
            return bash("echo on")
        if "work for ever" not in prompt:
            return Reply(text=f"{prompt} " + "x" * 3000 + f" end of {prompt}")
        if not request.tools or "MAXIMUM STEPS" in str(request.body.messages):
            return Reply(text=f"concluded after {request.turn} steps")
        return bash(f"echo step {request.turn}")

    steps = [
        *(task("work for ever"), task("ignore the limit"), task("outer job")),
        call("llm_subcall", prompts=["one", "two"]),
        bash("tail -c 40 /tmp/opencode/answers/1.txt; wc -c < /tmp/opencode/answers/1.txt"),
        DONE,
    ]
    texts = {"recursion_prompt": "Recurse wisely.", "subcall_description": "Ask someone."}
    harness = {"id": "opencode-rlm", "subcall_output": 1000, **texts}
    options = {"sub_llm_max_turns": 3, "max_depth": 2, "agent": {"harness": harness}}
    return await play(tmp_path_factory.mktemp("bounded"), steps, sub, options=options)


def test_a_sub_agent_is_a_branch_and_one_that_ignores_its_last_turn_is_no_dead_rollout(bounded: Played) -> None:
    routed(bounded)
    assert bounded.main.rewards["exact_answer"] is not None
    assert "concluded after 3 steps" in bounded.tool_results()[0]
    asked = [str(request.body["messages"]) for request in bounded.asked(SUB_MODEL)]
    prompts = ("work for ever", "ignore the limit", "outer job", "inner job", "one'", "two'")
    assert [sum(prompt in one for one in asked) for prompt in prompts] == [3, 3, 2, 2, 1, 1]
    assert (bounded.sub.num_branches, bounded.sub.num_turns) == (6, 11)
    assert bounded.main.metrics["task_calls"] == 3


def test_sub_agents_nest_up_to_the_depth_that_is_set(bounded: Played) -> None:
    assert "outer done, tools: True" in bounded.tool_results()[2]


def test_a_long_output_is_bounded_and_the_rest_is_in_a_file_that_is_named(bounded: Played) -> None:
    result, shown = bounded.tool_results()[3:]
    assert len(result) <= 1000
    assert "end of two" in shown
    whole = int(shown.split()[-1].removeprefix("two"))
    assert whole > 6000
    says = ("[1] one x", "[2] two x", "more characters]", "/tmp/opencode/answers/1.txt")
    assert [words for words in (*says, f"(All {whole} characters are in") if words not in result] == []


def test_both_texts_that_teach_recursion_can_be_replaced(bounded: Played) -> None:
    body = bounded.requests[0].body
    system = body["messages"][0]["content"]
    assert "Recurse wisely." in system
    assert "llm --batch" not in system
    tool = next(tool["function"] for tool in body["tools"] if tool["function"]["name"] == "llm_subcall")
    assert tool["description"] == "Ask someone."


async def test_the_sub_trace_trains_when_included_and_then_carries_the_reward(tmp_path: Path) -> None:
    steps = [call("llm_subcall", prompt="x"), DONE]
    with light_opencode_in_place():
        played = await play(tmp_path, steps, echo, options={"include_sub_llm_in_trajectory": True})
    assert (played.main.agent.trainable, played.sub.agent.trainable) == (True, True)
    assert played.sub.reward == played.main.reward == 1.0


async def test_a_plugin_that_did_not_load_is_an_error_and_not_a_main_only_rollout(tmp_path: Path) -> None:
    options = {"agent": {"harness": {"id": "opencode-rlm", "env": {"OPENCODE_PURE": "1"}}}}
    played = await play(tmp_path, [DONE], echo, options=options)
    assert played.error.startswith("HarnessError: ")
    assert "did not load the opencode-rlm plugin" in played.error
    assert (played.main.ok, played.requests) == (False, [])


async def test_the_agents_time_limit_ends_sub_calls_in_flight_and_the_rollout_is_scored(tmp_path: Path) -> None:
    async def limited(seconds: float) -> Played:
        options = {"agent": {"timeout": {"rollout": seconds}}}
        place = tmp_path / str(seconds)
        place.mkdir()
        says = [call("llm_subcall", prompt="x")]
        return await play(place, says, lambda _: faulty("hang"), options=options)

    with light_opencode_in_place():
        played = await within_a_limit(limited, lambda played: played.main.metrics["sub_llm_errors"])
    assert (played.main.stop_condition, played.main.ok) == ("agent_timeout", True)
    assert played.main.metrics["sub_llm_errors"] == 1
    assert [call.error is not None for call in played.sub.calls] == [True]


async def test_a_script_that_calls_without_the_header_is_recorded_in_the_main_trace(tmp_path: Path) -> None:
    script = """
import json, urllib.request
options = json.load(open("/tmp/opencode/config/opencode/opencode.json"))["provider"]["intercepted"]["options"]
def ask(**headers):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "from a script"}]}).encode()
    headers |= {"Authorization": "Bearer " + options["apiKey"], "Content-Type": "application/json"}
    request = urllib.request.Request(options["baseURL"] + "/chat/completions", body, headers)
    try:
        return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return str(error.code)
print(ask(), ask(**{"X-RLM-Role": "boss"}), ask(**{"X-RLM-Role": "sub"}))
"""
    with light_opencode_in_place():
        played = await play(tmp_path, [python(script), DONE], echo)
    assert played.episode.ok
    assert played.tool_results()[0].split()[-5:] == ["400", "echo:", "from", "a", "script"]
    refused = played.main.info["rlm"]["refused_roles"]
    assert (played.main.num_branches, played.sub.num_turns, len(refused)) == (2, 1, 1)

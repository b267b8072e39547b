"""The training client in front of a real engine: its traces are what the engine saw and sampled."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opencode_runs.trainable.__main__ import main as trainable

from tests.engines.playing import FIRST, PICTURE, Engine, Run, compare, forced, play, record, row, training
from tests.engines.recorder import FULL, GENERATE, TEXT, bash, lines, literal, tool_call
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.timeout(3600), pytest.mark.usefixtures("sandboxes"), pytest.mark.opencode, pytest.mark.slow]

Note = Callable[[str, object], None]
FREE = 0.35
"""Between the log-probability of a token that was sampled and of the same one in a prompt: both are computed in
bfloat16, in other batches."""

PLAIN = [bash(), bash("ls -l [a-z]{3,6}"), f"{bash()}\n{bash()}", bash("printf [a-z]{3,9}"), bash("cat [a-z]{3,6}")]
HOSTILE = [
    bash(timeout=r"[1-9][0-9]{3}\.0"),
    literal('<tool_call>\n{ "name":"bash", "arguments" : { "description" : "d",\n"command":"echo ')
    + r"[a-z]{3,9}\" }}\n</tool_call>",
    tool_call("nothing", command='"[a-z]{3,9}"'),
    tool_call("Bash", command='"echo [a-z]{3,9}"', description='"d"'),
    literal('<tool_call>\n{"name": "bash", "arguments": {"command": ') + "[a-z]{3,9}" + literal("\n</tool_call>"),
    tool_call("bash", command='"echo [a-z]{3,9}"', command_="[0-9]{20,24}"),
    literal("<tool_call>\n") + "[a-z ]{3,30}" + literal("\n</tool_call>"),
]
ROLLOUTS = "3"
CUT = bash("echo [a-z]{600}")
SAID = {
    "row plain:": PLAIN,
    "row hostile:": [*HOSTILE, TEXT],
    "row users:": [bash(), TEXT, bash(), bash(), TEXT, bash(), TEXT],
    "row cut:": [bash(), CUT, bash(), TEXT],
    "row picture:": [tool_call("read", filePath='"/app/pixel[.]png"'), TEXT],
}
ROWS = [
    *(row(name) for name in ("plain", "hostile", "cut")),
    row("picture", setup=PICTURE),
    row("users", user_simulation={"script": ["And now?", "And then?"]}),
]


@pytest.fixture(scope="module")
def run(engine: Engine, shared_home: UserHome) -> Run:
    """Rollouts of each row, four at once."""
    options = [*training(engine), "-r", ROLLOUTS, "-c", "4"]
    run = asyncio.run(play(engine, shared_home, "training", ROWS, lines(SAID), *options, tools=("bash", "read")))
    record(engine, generate=sorted(run.recorder.generated, key=lambda one: len(one.text))[:1])
    return run


def traces(run: Run, *names: str) -> list[Any]:
    found = [trace for name in names or [one["id"] for one in ROWS] for trace in run.traces(name)]
    assert all(trace.ok for trace in found), [trace.errors for trace in found]
    return found


@pytest.mark.engine("training: prompt ids, sampled ids, masks, log-probabilities")
def test_each_turn_is_what_the_engine_saw_and_sampled(run: Run, record_property: Note) -> None:
    compared = compare(traces(run), run.recorder.calls)
    record_property("figures", compared)
    assert compared.exact, compared


@pytest.mark.engine("training: one branch a rollout, whatever is said")
def test_a_rollout_is_one_branch(run: Run) -> None:
    assert {trace.num_branches for trace in traces(run)} == {1}


@pytest.mark.engine("training: several rollouts at once")
def test_rollouts_that_interleave_are_told_apart(run: Run, record_property: Note) -> None:
    assert run.recorder.most_at_once > 1
    record_property("figures", f"{run.recorder.most_at_once} calls at once")
    assert len(traces(run)) == int(ROLLOUTS) * len(ROWS)


@pytest.mark.engine("training: a user who goes on")
def test_a_user_goes_on(run: Run) -> None:
    for trace in traces(run, "users"):
        assert (trace.stop_condition, trace.info["agent"]["segments"]) == ("user_stop", 3)


@pytest.mark.engine("training: a call that is cut off")
def test_a_call_that_is_cut_off_is_told_to_the_agent(run: Run) -> None:
    for trace in traces(run, "cut"):
        assert "length" in [call.finish_reason for call in trace.calls]
        assert trace.reward == 1.0


@pytest.mark.engine("training: a picture that a tool reads, a model without vision")
def test_a_model_without_vision_is_told_that_there_is_a_picture(run: Run) -> None:
    assert len(traces(run, "picture")) == int(ROLLOUTS)
    prompts = [run.recorder.tokenizer.decode(call.prompt) for call in run.recorder.calls]
    told = [prompt for prompt in prompts if "row picture:" in prompt and "does not support image input" in prompt]
    assert len(told) == int(ROLLOUTS)


@pytest.mark.engine("training: `opencode-trainable --check`")
def test_the_check_of_the_run_is_clean(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert trainable([str(run.finished.directory), "--check"]) == 0, capsys.readouterr()


@pytest.mark.engine("training: what was sampled, given to the engine as a prompt")
async def test_the_engine_says_the_same_of_what_it_is_given(engine: Engine, run: Run, record_property: Note) -> None:
    """Of answers that nothing narrowed: a narrowed one has other probabilities."""
    calls = [
        call
        for exchange, call in zip(run.recorder.generated, run.recorder.calls, strict=True)
        if "structured_outputs" not in exchange.body["sampling_params"]
    ]
    assert len(calls) >= int(ROLLOUTS)
    off = [
        abs(one - other) for call in calls for one, other in zip(call.logprobs, await forced(engine, call), strict=True)
    ]
    record_property("figures", f"{len(off)} tokens, {sum(off) / len(off):.4f} apart, {max(off):.3f} at most")
    assert sum(off) / len(off) < 0.02
    assert max(off) < FREE


@pytest.fixture(scope="module")
def windows(engine: Engine, shared_home: UserHome) -> Run:
    """A prompt that no window holds, and a conversation that outgrows it. The client refuses both by the window that
    the engine's list of models names, and the engine never hears of them."""
    rows, said = [row("first", question=FIRST), row("full")], lines({"row full:": [bash(), FULL, bash(), TEXT]})
    run = asyncio.run(play(engine, shared_home, "windows", rows, said, *training(engine)))
    assert {one.status for one in run.recorder.exchanges if one.path == GENERATE} == {200}
    return run


@pytest.mark.engine("training: a window that is full before the first answer")
def test_a_window_that_is_full_at_first_is_an_error(windows: Run) -> None:
    assert windows.finished.error("first").startswith("ProviderError: before the model's first answer: ")


@pytest.mark.engine("training: a window that is full after the first answer")
def test_a_window_that_is_full_later_ends_the_rollout_which_trains(windows: Run, record_property: Note) -> None:
    (trace,) = windows.traces("full")
    assert (trace.ok, trace.stop_condition, trace.reward) == (True, "max_total_tokens", 1.0), trace.errors
    compared = compare([trace], windows.recorder.calls)
    record_property("figures", compared)
    assert compared.exact, compared

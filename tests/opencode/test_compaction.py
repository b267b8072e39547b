"""OpenCode knows the window, and summarises before an endpoint has to refuse a request.

Whatever happens around a summary, what was sampled trains once, in one section or as one summary.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.cli_agent.classification import overflowed
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, Policy, Reply
from opencode_runs.traces.record import SampleKind
from opencode_runs.trainable.__main__ import main
from opencode_runs.trainable.samples import recorded_parts
from pydantic import ValidationError
from verifiers.v1.agent import TimeoutConfig, make_agent
from verifiers.v1.episode import Episode
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.utils.trace_store import write_episode

from tests.opencode.test_opencode_config import built
from tests.opencode.test_pictures import PICTURE
from tests.support.places import Place
from tests.support.replies import bash, call, fault
from tests.support.rollouts import Played, conversation, play
from tests.support.rows import write_rows
from tests.support.seats import MAIN_MODEL
from tests.support.served_env import served
from tests.support.sizes import size
from tests.support.tasks import PROMPT, SeenTask, seen_data
from tests.support.token_engine import Says, TokenEngine
from tests.support.user_home import UserHome
from tests.support.waiting import until, within_a_limit
from tests.training.test_exact_sections import FAMILY, assert_sections_exact
from tests.training.test_exact_sections import counting as lines
from tests.training.trained import train_client

WINDOW = 20_000
RESERVE = 6_000
SUMMARY = "Here is the conversation so far"
ROOM: dict[str, Any] = {"context_window": 24_000, "window_reserve": 8_000, "disable_compaction": False}
"""Of models whose tokens are shorter."""


def is_summary(body: dict[str, Any]) -> bool:
    """Whether a request asks for a summary."""
    return any(SUMMARY in str(message["content"]) for message in body["messages"])


def counting() -> Policy:
    """Eight calls whose results together are longer than the window."""
    calls = [bash(f"seq {n}00000 {n}01400").model_copy(update={"text": f"This is {n}."}) for n in range(1, 9)]
    left = [*calls, Reply(text="Done.")]
    return lambda request: Reply(text="The numbers were counted.") if SUMMARY in request.prompt else left.pop(0)


async def played(confined: Place, **harness: Any) -> Played:
    """A rollout of `counting`."""
    async with role_interception(InterceptionServerConfig()) as server:
        return await play(confined, counting(), harness=harness, server={"context_window": WINDOW}, interception=server)


@pytest.mark.opencode
@pytest.mark.parametrize("window", [WINDOW, "auto"])
async def test_opencode_summarises_before_the_window_is_full(confined: Place, window: int | str) -> None:
    told = {"context_window": window, "window_reserve": RESERVE, "disable_compaction": False}
    run = await played(confined, **told)
    summaries = [number for number, request in enumerate(run.requests) if is_summary(request.body)]
    assert summaries
    assert run.trace.ok, run.trace.errors
    assert run.record["outcome"] == "completed"
    assert [call.error for call in run.trace.calls] == [None] * len(run.requests)
    assert (run.trace.metrics["compactions"], run.trace.metrics["history_forks"]) == (len(summaries), 0)
    assert run.trace.num_branches == 2 * len(summaries) + 1
    assert run.requests[0].body["max_tokens"] > RESERVE  # an answer is held to what fits, and not to the reserve


@pytest.mark.opencode
async def test_a_refusal_that_opencode_recovers_from_is_no_error(confined: Place) -> None:
    run = await played(confined, context_window=10 * WINDOW, disable_compaction=False)  # the endpoint's is smaller
    refused = [call for call in run.trace.calls if call.error is not None]
    assert refused
    assert overflowed(refused)
    assert run.trace.ok, run.trace.errors
    assert (run.record["outcome"], run.trace.metrics["model_call_errors"]) == ("completed", 0)
    assert (run.trace.metrics["agent_error"], run.trace.metrics["history_forks"]) == (0, 0)
    assert {one["planned"] for one in run.trace.info["history"]["summaries"]} == {False}


@pytest.mark.opencode
async def test_beyond_opencodes_own_limit_of_steps_a_section_is_one_branch(confined: Place) -> None:
    """Its order to stop, the last message of every further request, stays where the model has read it."""
    harness = {"context_window": WINDOW, "window_reserve": RESERVE, "disable_compaction": False}
    run = await played(confined, **harness, opencode_config={"agent": {"build": {"steps": 2}}})
    ordered = ["MAXIMUM STEPS" in str(request.body["messages"][-1]) for request in run.requests]
    summaries = [number for number, request in enumerate(run.requests) if is_summary(request.body)]
    assert summaries
    assert ordered == [number > 0 and number not in summaries for number in range(len(ordered))]
    assert run.trace.ok, run.trace.errors
    assert (run.trace.num_branches, run.trace.metrics["history_forks"]) == (2 * len(summaries) + 1, 0)


@pytest.mark.opencode
async def test_a_limit_right_behind_a_summary_leaves_the_answer_before_it(confined: Place) -> None:
    """To the agent's user, and to what scores it."""
    harness = {"context_window": WINDOW, "window_reserve": RESERVE, "disable_compaction": False}
    whole = await played(confined, **harness)
    turns = 1 + next(number for number, request in enumerate(whole.requests) if is_summary(request.body))
    async with (
        role_interception(InterceptionServerConfig()) as server,
        conversation(confined, counting(), harness=harness, settings={"max_turns": turns}, interception=server) as (
            talk,
            model,
        ),
    ):
        heard = (await talk.turn("Count the numbers.")).last_reply
    trace = talk.trace
    assert (trace.ok, trace.stop_condition, len(model.requests)) == (True, "max_turns", turns), trace.errors
    assert trace.nodes[trace.info["history"]["summaries"][0]["node"]] is trace.nodes[-1]
    assert (heard, trace.last_reply) == (f"This is {turns - 1}.",) * 2


@pytest.mark.opencode
async def test_without_compaction_a_full_window_ends_the_rollout_also_where_it_is_known(confined: Place) -> None:
    run = await played(confined, context_window=WINDOW)
    assert not any(is_summary(request.body) for request in run.requests)
    assert (run.trace.ok, run.record["outcome"]) == (True, "context_window")


def test_the_window_is_told_only_where_opencode_may_compact() -> None:
    def limit(window: int | None, **config: Any) -> tuple[Any, Any]:
        made = built(window=window, **config)
        return made["provider"]["intercepted"]["models"]["m"].get("limit"), made["compaction"].get("reserved")

    on = {"disable_compaction": False}
    assert limit(WINDOW) == limit(None, **on) == (None, None)
    known = {"context": WINDOW, "input": WINDOW, "output": 0}
    assert limit(WINDOW, **on) == (known, 5_000)
    assert limit(WINDOW, **on, window_reserve=RESERVE) == (known, RESERVE)
    assert limit(1_000_000, **on)[1] == 20_000
    assert limit(4_000, **on, window_reserve=RESERVE)[1] == 3_999  # of an endpoint's list, known after the options


def test_a_reserve_that_leaves_nothing_of_the_window_is_refused() -> None:
    with pytest.raises(ValidationError, match="window_reserve must be smaller than context_window, 6000 tokens"):
        built(context_window=RESERVE, window_reserve=RESERVE)


JOBS = ("job one", "job two")
SUMMARISED = Says(FAMILY.answer("It was counted.", reasoning="What was it?"))
HELD = Says(held=True)
FAILING = Says(refuses="Try again.", status=503)
BROKEN = Says(SUMMARISED.text, breaks=True)
SIDE_BY_SIDE = Says(
    FAMILY.answer(
        "Both.",
        *(FAMILY.call("task", {"description": "a job", "prompt": job, "subagent_type": "general"}) for job in JOBS),
        FAMILY.call("bash", {"command": "seq 100000 100450", "description": "a command"}),
        reasoning="Hm.",
    )
)


@dataclass(frozen=True)
class Around:
    """What happens around the summaries of one rollout, and how it ends."""

    main: Sequence[Says] = field(default_factory=lambda: lines(4))
    jobs: Mapping[str, Sequence[Says]] = field(default_factory=dict)
    """What sub-agents' models say, by a word of their prompt."""
    summaries: Sequence[Says] = (SUMMARISED,)
    """The answers to requests for one; the last one to all further ones."""
    behind: Says | None = None
    """The answer to the first call behind a summary."""
    killed: bool = False
    """Whether OpenCode is, while it waits for an answer that never comes."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the seat."""
    stop: str = "agent_completed"
    made: int = 1
    """Summaries at least."""
    used: int | None = None
    """Those with which a section begins; None: all."""


class Speaker:
    """The model's part in one rollout."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._given: Counter[str] = Counter()
        self.waits = False
        """Whether an answer that never comes was asked for."""

    def __call__(self, model: str, prompt: str, /) -> Says:
        around, end = self._around, Says(FAMILY.answer("Done.", reasoning="Enough."))
        if "You are a context summarization agent" in prompt:
            says = self._next("summary", around.summaries, around.summaries[-1])
        elif around.behind is not None and "What did we do so far?" in prompt:
            says = self._next("behind", [around.behind], end)
        else:
            job = next((job for job in around.jobs if job in prompt and PROMPT not in prompt), "")
            says = self._next(job, around.jobs.get(job, around.main), end)
        self.waits = self.waits or says.held
        return says

    def _next(self, part: str, lines: Sequence[Says], last: Says) -> Says:
        self._given[part] += 1
        return lines[self._given[part] - 1] if self._given[part] <= len(lines) else last


async def compacted(place: Place, tokenizer: Path, around: Around, **settings: Any) -> tuple[AnyTrace, TokenEngine]:
    """One rollout with a training client: its trace, and what the engine saw."""
    speaker = Speaker(around)
    engine = TokenEngine(tokenizer, FAMILY, speaker, ROOM["context_window"])

    async def kill(box: Runtime) -> None:
        if around.killed:
            await until(lambda: speaker.waits)
            await box.run(["pkill", "-9", "opencode"], {})

    async with engine.serving() as url, role_interception(InterceptionServerConfig()) as server:
        seat = vf.AgentConfig(
            harness=OpenCodeHarnessConfig(id="opencode-env", disabled_tools=["question"], **ROOM),
            runtime=place.runtime,
            model=MAIN_MODEL,
            client=train_client(url, FAMILY, tokenizer),
            **{**around.settings, **settings},
        )
        agent = make_agent(seat, interception=server)
        async with place.box(agent) as box:
            trace, _ = await asyncio.gather(agent.run(SeenTask(seen_data()), runtime=box), kill(box))
    return trace, engine


def assert_sound(trace: AnyTrace, engine: TokenEngine, around: Around, directory: Path) -> None:
    """It ended by the rule; its parts are exact, and `opencode-trainable` finds nothing."""
    assert (trace.ok, trace.stop_condition) == (True, around.stop), trace.errors
    assert trace.reward == 1.0
    assert_sections_exact(trace, engine.calls, around.made, around.used)
    write_episode(directory, Episode(task=trace.task, traces=[trace], ok=True))
    assert main([str(directory), "--check"]) == 0


FIVE = "five, of which one was retried and one broke off"
AROUND: dict[str, Around] = {
    FIVE: Around(lines(14), summaries=(SUMMARISED, FAILING, SUMMARISED, BROKEN, SUMMARISED), made=5),
    "of sub-agents side by side": Around([SIDE_BY_SIDE], {job: lines(4) for job in JOBS}, made=2),
    "killed in it": Around(summaries=(HELD,), killed=True, stop="agent_error", made=0),
    "killed behind it": Around(behind=HELD, killed=True, stop="agent_error", used=0),
}


PLAYED = [
    *(pytest.param("confined", name, id=name) for name in AROUND),
    pytest.param("container", FIVE, marks=pytest.mark.podman, id=f"{FIVE}, in podman"),
]


@pytest.mark.opencode
@pytest.mark.parametrize(("place", "case"), PLAYED)
async def test_what_is_sampled_around_a_summary_trains_once(
    sandboxes: None, request: pytest.FixtureRequest, place: str, case: str, tokenizer: Path, tmp_path: Path
) -> None:
    around = AROUND[case]
    assert_sound(*await compacted(request.getfixturevalue(place), tokenizer, around), around, tmp_path)


@pytest.mark.opencode
@pytest.mark.parametrize(
    "waits", [{"summaries": (HELD,), "made": 0}, {"behind": HELD, "used": 0}], ids=["in", "behind"]
)
async def test_the_time_may_be_over_in_or_behind_a_summary(
    confined: Place, waits: dict[str, Any], tokenizer: Path, tmp_path: Path
) -> None:
    around = Around(**waits, stop="agent_timeout")

    async def limited(seconds: float) -> tuple[AnyTrace, TokenEngine]:
        return await compacted(confined, tokenizer, around, timeout=TimeoutConfig(rollout=seconds))

    trace, engine = await within_a_limit(limited, lambda played: played[1].asked > len(played[1].calls))
    assert_sound(trace, engine, around, tmp_path)


@pytest.mark.opencode
async def test_each_limit_may_be_met_at_a_summary_which_counts_as_its_tokens_do(
    confined: Place, tokenizer: Path, tmp_path: Path
) -> None:
    whole, _ = await compacted(confined, tokenizer, Around())
    assert whole.num_total_tokens == sum(len(branch.token_ids) for branch in whole.branches)
    assert whole.num_output_tokens == sum(sum(branch.sampled_mask) for branch in whole.branches)
    summary = whole.info["history"]["summaries"][0]["node"]
    turn = 1 + [call.node for call in whole.calls].index(summary)
    *before, last = [call.usage for call in whole.calls[:turn] if call.usage is not None]
    said = sum(usage.completion_tokens for usage in before) + last.completion_tokens // 2
    given = before[-1].total_tokens - said + last.input_tokens // 2
    limits: list[tuple[str, int, bool]] = [("max_turns", turn, True), ("max_total_tokens", said + given, True)]
    limits += size(
        [], [("max_output_tokens", said, True), ("max_input_tokens", given, True), ("max_turns", turn - 1, False)]
    )
    for number, (limit, most, made) in enumerate(limits):
        around = Around(settings={limit: most}, stop=limit, made=int(made), used=0)
        trace, engine = await compacted(confined, tokenizer, around)
        (tmp_path / str(number)).mkdir()
        assert_sound(trace, engine, around, tmp_path / str(number))
        assert len(trace.info.get("history", {}).get("summaries", ())) == made


@pytest.mark.opencode
async def test_a_picture_that_was_read_is_seen_up_to_the_summary_whose_stream_is_cut(confined: Place) -> None:
    """The answer that was cut comes again; neither it nor what came of it is on the trace."""
    put = bash(f"echo {PICTURE.partition(',')[2]} | base64 -d > /app/pixel.png")
    left = [put, call("read", filePath="/app/pixel.png"), *(bash(f"seq {n}00000 {n}01400") for n in range(1, 9))]

    def policy(request: ChatRequest) -> Reply:
        if SUMMARY in request.prompt:
            return Reply(text="The numbers were counted.", faults=fault("cut", attempts=1))
        return left.pop(0) if left else Reply(text="Done.")

    harness = {"context_window": WINDOW, "window_reserve": RESERVE, "disable_compaction": False, "images": True}
    async with role_interception(InterceptionServerConfig()) as server:
        run = await play(confined, policy, harness=harness, interception=server)
    assert (run.trace.ok, run.record["outcome"]) == (True, "completed"), run.trace.errors
    parts = recorded_parts(run.trace)
    answers = sorted(number for part in parts for number in part.answers)
    assert answers == [number for number, node in enumerate(run.trace.nodes) if node.sampled]
    assert (run.trace.num_branches, run.trace.metrics["history_forks"]) == (len(parts), 0)
    summaries = [part for part in parts if part.kind == SampleKind.SUMMARY]
    asked = [is_summary(request.body) for request in run.requests]
    assert sum(asked) == 2 * len(summaries) > 0
    shown = [PICTURE in str(request.body) for request in run.requests]
    first = asked.index(True)
    assert shown[:first] == [False, False, *[True] * (first - 2)]
    assert not any(shown[first:])


@pytest.mark.opencode
async def test_what_is_to_train_is_masked_for_the_client_of_an_environment_server(
    home: UserHome, tokenizer: Path, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "one", "question": PROMPT, "answer": "x"}])
    harness = {**ROOM, "compaction_trains": "last"}
    fields = {"taskset": {"id": "opencode-env", "dataset": str(rows)}, "agent": {"harness": harness}}
    engine = TokenEngine(tokenizer, FAMILY, Speaker(Around()), ROOM["context_window"])
    async with engine.serving() as url, served(home, fields, 1) as env:
        client = train_client(url, FAMILY, tokenizer)
        episode = await env.client.run(client, MAIN_MODEL, vf.SamplingConfig(), dict(env.tasks["one"]))
    (trace,) = episode.traces
    assert episode.ok, episode.errors
    assert trace.info["history"]["trains"] == "last"
    *earlier, last = [part for part in recorded_parts(trace) if part.kind == SampleKind.SECTION]
    assert ({part.trains for part in earlier}, last.trains) == ({False}, True)
    trained = [number for number, node in enumerate(trace.nodes) if node.sampled and any(node.mask)]
    assert trained == [*last.answers]

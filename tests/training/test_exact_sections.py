"""With a training client every token of a summarised conversation is what the engine saw and sampled, once."""

from pathlib import Path

import pytest
from opencode_env.cli_agent.traces import AnyTrace, lineage
from opencode_env.scripted_model import Reply, ScriptedModel
from opencode_runs.traces.record import SampleKind
from opencode_runs.trainable.samples import training_samples
from verifiers.v1.clients import EvalClientConfig

from tests.support.families import Qwen3
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.token_engine import Call, Says
from tests.training.hostile import bash
from tests.training.test_exact_tokens import agent
from tests.training.trained import assert_exact, train

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

FAMILY = Qwen3(True, "all")
WINDOW, RESERVE = 24_000, 8_000


def counting(times: int) -> list[Says]:
    """Calls with results of some length, two in parallel each, whose arguments OpenCode writes otherwise."""
    long = [bash(FAMILY, f"seq {n}000 {n}450", timeout=59999.0) for n in range(1, times + 1)]
    return [Says(FAMILY.answer("Now.", one, bash(FAMILY, "true"), reasoning="Hm.")) for one in long]


def assert_sections_exact(trace: AnyTrace, calls: list[Call], least: int, used: int | None = None) -> None:
    """Each section and each summary is one branch, token for token; every call of the engine that was answered is in
    one of them, or in the one branch of a conversation that was not summarised."""
    history, nodes = {"forks": 0, "sections": [], "summaries": []} | trace.info.get("history", {}), trace.nodes
    assert history["forks"] == 0
    assert sum(one["used"] for one in history["summaries"]) == (len(history["summaries"]) if used is None else used)
    assert len(history["summaries"]) >= least
    answered = [call for call in trace.calls if call.node is not None]
    own = {call.node: engine for call, engine in zip(answered, calls, strict=True)}
    found: list[int] = []
    parts = [*history["sections"], *({"first": one["node"], "last": one["node"]} for one in history["summaries"])]
    ends = {one["last"] for one in parts}
    parents = {node.parent for node in nodes}
    plain = [{"first": 0, "last": at} for at in range(len(nodes)) if not {at} <= parents | ends]
    assert len(trace.branches) == len(parts) + len(plain)
    for one in [*parts, *plain]:
        path = [*lineage(nodes, one["last"])][::-1]
        trained = [node for node in path if nodes[node].sampled]
        assert trained == [node for node in trained if node >= one["first"]]
        branch = next(branch for branch in trace.branches if branch.nodes[-1] is nodes[one["last"]])
        assert_exact(trace, branch, [own[node] for node in trained])
        assert one.get("tokens", len(branch.token_ids)) == len(branch.token_ids)
        found += trained
    assert sorted(found) == sorted(node for node in own if node is not None)


async def test_sections_and_summaries_of_main_and_sub_agent_are_exact(tokenizer: Path) -> None:
    """The summary has a thought, and the same text each time."""
    jobs = {"job one": [*counting(4), Says(FAMILY.answer("job one done."))]}
    played = await train(
        tokenizer,
        FAMILY,
        [Says(FAMILY.answer("", agent(FAMILY, "job one"), reasoning="Hm.")), *counting(6)],
        sub=jobs,
        summary=Says(FAMILY.answer("It was counted.", reasoning="What was it?")),
        window=WINDOW,
        context_window=WINDOW,
        window_reserve=RESERVE,
        disable_compaction=False,
    )
    assert played.main.ok, played.main.errors
    for trace, model, least in ((played.main, MAIN_MODEL, 2), (played.sub, SUB_MODEL, 1)):
        assert_sections_exact(trace, played.engine.of(model), least)
    assert played.main.metrics["compactions"] == len(played.main.info["history"]["summaries"])
    assert played.main.metrics["model_call_errors"] == 0


async def test_what_another_seats_model_sums_up_is_context_of_exact_sections(tokenizer: Path) -> None:
    async with ScriptedModel(lambda _: Reply(text="It was counted.", reasoning="What was it?")) as other:
        played = await train(
            tokenizer,
            FAMILY,
            counting(6),
            window=WINDOW,
            context_window=WINDOW,
            window_reserve=RESERVE,
            disable_compaction=False,
            summary_client=EvalClientConfig(base_url=other.base_url, api_key_var="NO_SUCH_KEY"),
        )
        asked = other.requests
    trace, calls = played.main, played.engine.of(MAIN_MODEL)
    assert trace.ok, trace.errors
    history = trace.info["history"]
    assert len(asked) >= 2
    assert [(one["node"], one["used"]) for one in history["summaries"]] == [(None, True)] * len(asked)
    assert (history["forks"], trace.num_branches) == (0, len(asked) + 1)
    own = {call.node: engine for call, engine in zip(trace.calls, calls, strict=True)}
    assert not any("context summarization agent" in played.engine.text(call.prompt) for call in calls)
    for one in history["sections"]:
        branch = next(branch for branch in trace.branches if branch.nodes[-1] is trace.nodes[one["last"]])
        mine = [node for node in sorted(lineage(trace.nodes, one["last"])) if trace.nodes[node].sampled]
        assert_exact(trace, branch, [own[node] for node in mine])
        trained = [token for token, mask in zip(branch.token_ids, branch.sampled_mask, strict=True) if mask]
        assert "It was counted." not in played.engine.text(trained)
    assert {sample.kind for sample in training_samples(trace)} == {SampleKind.SECTION}
    assert len(training_samples(trace)) == len(asked) + 1

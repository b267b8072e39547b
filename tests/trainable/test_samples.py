"""A trace's samples by the documented rules, on graphs as verifiers keeps them."""

import pytest
from opencode_runs.errors import BrokenGraphError
from opencode_runs.trainable.samples import branch_paths, training_samples
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask, WireTrace

from tests.trainable.graphs import Line, answer, prompt


def trace_of(*nodes: Line, info: Line | None = None) -> WireTrace:
    """A trace of these nodes."""
    task: TraceTask[WireTaskData] = TraceTask(type="Task", data=WireTaskData(idx=0))
    trace: WireTrace = Trace(task=task, agent=AgentInfo(config=WireAgentConfig()))
    trace.nodes = [MessageNode.model_validate(node) for node in nodes]
    trace.info.update(info or {})
    return trace


def test_a_linear_conversation_is_one_sample_that_trains_every_sampled_token_once() -> None:
    trace = trace_of(prompt(None, 1, 2), answer(0, 4, 5, head=(3,)), prompt(1, 6), answer(2, 8, head=(7,)))
    (sample,) = training_samples(trace)
    assert sample.token_ids == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sample.mask == [False, False, False, True, True, False, False, True]
    assert sample.logprobs == pytest.approx([0, 0, 0, -0.04, -0.05, 0, 0, -0.08])
    assert (sample.branch, sample.path, sample.trains, sample.trained) == (0, (0, 1, 2, 3), (1, 3), 3)


def test_a_turn_that_two_branches_hold_trains_in_the_first_and_is_context_in_the_second() -> None:
    trace = trace_of(prompt(None, 1), answer(0, 2), prompt(1, 3), answer(2, 4), prompt(1, 5), answer(4, 6))
    first, second = training_samples(trace)
    assert (first.token_ids, first.mask) == ([1, 2, 3, 4], [False, True, False, True])
    assert (second.token_ids, second.mask) == ([1, 2, 5, 6], [False, False, False, True])
    assert second.logprobs == pytest.approx([0, -0.02, 0, -0.06])
    assert (first.trains, second.trains) == ((1, 3), (5,))


def test_a_branch_that_trains_nothing_of_its_own_gives_no_sample() -> None:
    trace = trace_of(prompt(None, 1), answer(0, 2), prompt(1, 3), prompt(None, 4))
    assert [sample.path for sample in training_samples(trace)] == [(0, 1, 2)]
    assert branch_paths(trace) == [(0, 1, 2), (3,)]


def test_a_trace_without_tokens_gives_no_sample() -> None:
    assert training_samples(trace_of(prompt(None), answer(0), prompt(1), answer(2))) == []


def test_the_streams_are_those_of_verifiers_branches() -> None:
    nodes = [prompt(None, 1), answer(0, 2, 3), prompt(1, 4), answer(2, 5), prompt(1, 6), answer(4, 7, logprobs=[])]
    trace = trace_of(*nodes)
    samples = training_samples(trace)
    assert [sample.token_ids for sample in samples] == [list(branch.token_ids) for branch in trace.branches]
    for sample, branch in zip(samples, trace.branches, strict=True):
        assert sample.logprobs == pytest.approx(list(branch.logprobs))


@pytest.mark.parametrize("parent", [1, 7, -1])
def test_a_node_that_hangs_on_no_earlier_node_is_named(parent: int) -> None:
    with pytest.raises(BrokenGraphError, match=f"node 1 hangs on node {parent}"):
        training_samples(trace_of(prompt(None, 1), answer(parent, 2)))

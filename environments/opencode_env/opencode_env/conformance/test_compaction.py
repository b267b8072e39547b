"""An agent that goes on behind a full window with a summary loses no answer, and trains none twice."""

import json
from collections import Counter

import pytest
from opencode_runs.trainable.samples import recorded_parts

from opencode_env.cli_agent.interception.conversations import HISTORY_RECORD
from opencode_env.conformance.evidence import COMPACTING_ROWS, Evaluations
from opencode_env.conformance.plugin import PlayedRow


def test_every_answer_around_a_summary_is_on_the_trace_once_and_none_is_a_fork(compacted: PlayedRow) -> None:
    trace = compacted.trace
    assert compacted.ok, compacted.broken("A rollout that goes on behind a full window with a summary must be sound.")
    assert trace is not None
    behind: set[int | None] = set()
    for number, node in enumerate(trace.nodes):
        behind |= {number} if node.sampled or node.parent in behind else set()
    children = Counter(node.parent for node in trace.nodes if node.parent in behind)
    forks = sum(count - 1 for count in children.values())
    assert forks == 0, compacted.broken(f"A history that goes on behind an answer changes: {forks} forks.")
    answers = sorted(call.node for call in trace.calls if call.node is not None)
    sampled = [number for number, node in enumerate(trace.nodes) if node.sampled]
    assert answers == sampled, compacted.broken("Each answer must be one node of the trace, which trains once.")


def test_each_answer_is_of_one_section_or_is_one_summary(sections: PlayedRow) -> None:
    trace = sections.trace
    assert trace is not None
    parts = recorded_parts(trace)
    answers = sorted(number for part in parts for number in part.answers)
    sampled = [number for number, node in enumerate(trace.nodes) if node.sampled]
    assert answers == sampled, sections.broken("Each answer must stand in one section, or be one summary.")
    assert trace.num_branches == len(parts), sections.broken("Each section and each summary must be one branch.")
    record = trace.info[HISTORY_RECORD]
    assert record["forks"] == 0, sections.broken(f"A summary must not count as a fork: {record['first']}")
    assert any(one["used"] for one in record["summaries"]), sections.broken("No section begins with a summary.")


def test_the_tasks_words_stand_in_every_section_and_in_every_request_for_a_summary(sections: PlayedRow) -> None:
    words = COMPACTING_ROWS[0].prompt
    requests = [json.dumps(request.body["messages"]) for request in sections.evidence.asked("compacts")]
    without = [number for number, said in enumerate(requests, 1) if words not in said]
    assert without == [], sections.broken(f"The task's own words are missing in request {without[:5]} of the model.")


def test_a_forged_request_for_a_summary_is_an_ordinary_call(sections: PlayedRow, runs: Evaluations) -> None:
    if not hasattr(runs.subject.dialect, "forge"):
        pytest.skip("the dialect does not say how the agent is brought to ask for a summary (`forge`)")
    forged = PlayedRow(sections.evidence, "forges")
    assert forged.ok, forged.broken("What an agent makes its own program ask must end nothing.")
    first, *later = [request.body for request in sections.evidence.asked("forges")]
    begun = [message for message in first["messages"] if message["role"] == "system"]
    assert any(body["messages"][: len(first["messages"])] != first["messages"] for body in later), forged.broken(
        "The command of the dialect (`forge`) did not bring the agent to ask for a summary."
    )
    for body in later:
        kept = body["messages"][: len(begun)] == begun and body.get("tools") == first.get("tools")
        assert kept, forged.broken("It must keep the system prompt and the tools of its conversation.")
    assert forged.trace is not None
    summaries = forged.trace.info.get(HISTORY_RECORD, {}).get("summaries", [])
    assert summaries == [], forged.broken("Only what the endpoint counted in the window starts a summary.")

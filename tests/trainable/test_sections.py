"""What a trainer gets of a conversation that was compacted: one sample a section and one a summary."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opencode_env.cli_agent.traces import mask_untrained
from opencode_openenv.rollout_engine import _turns
from opencode_runs.traces.record import SampleKind, Trained
from opencode_runs.trainable.__main__ import main
from opencode_runs.trainable.findings import Flaw
from opencode_runs.trainable.inspection import inspect
from opencode_runs.trainable.samples import recorded_parts, training_samples
from verifiers.v1.serve.delta import DeltaStreamer, EpisodeAssembly, pack, unpack
from verifiers.v1.trace import WireTrace

from tests.difficulty.lines import episode, write_run
from tests.trainable.doctored import run, trace
from tests.trainable.graphs import Line, calls, compacted, compacted_elsewhere
from tests.trainable.test_samples import trace_of

METRICS = {"history_forks": 0.0}
Nodes = list[Line]
Record = dict[str, Any]


def sectioned(
    change: Callable[[Nodes, Record], object] = lambda nodes, record: None, reward: float = 1.0, trains: str = "all"
) -> Line:
    """A trace of two compactions; one whose record or messages are changed has the calls of those that it had."""
    nodes, info = compacted()
    history = info["history"] | {"trains": trains}
    made = calls(nodes)
    for part in recorded_parts(trace_of(*nodes, info={"history": history})):
        for number in part.answers:
            if not part.trains:
                nodes[number] |= {"mask": [False] * len(nodes[number]["mask"]), "logprobs": []}
    change(nodes, history)
    return trace(reward, nodes=nodes, calls=made, info={"history": history}, metrics=METRICS)


def test_each_section_and_each_summary_is_one_sample_in_which_its_own_answers_train() -> None:
    nodes, info = compacted()
    samples = training_samples(trace_of(*nodes, info=info))
    assert [(sample.kind, sample.trains) for sample in samples] == [
        (SampleKind.SECTION, (2, 4)), (SampleKind.SUMMARY, (7,)), (SampleKind.SECTION, (12, 14)),
        (SampleKind.SUMMARY, (16,)), (SampleKind.SECTION, (19,)),
    ]  # fmt: skip
    section = samples[2]
    assert section.token_ids == [1, 13, 10, 11, 12, 6, 14, 15, 16, 17, 18]
    assert section.mask == [token in (15, 17, 18) for token in section.token_ids], "a copy is context"
    assert sum(sample.trained for sample in samples) == sum(sum(node["mask"]) for node in nodes)


def test_a_rollout_counts_once_however_many_samples_it_is(tmp_path: Path) -> None:
    lines = [episode("a", sectioned(reward=1.0)), *(episode("a", trace(reward)) for reward in (0.0, 0.0, 1.0))]
    report = inspect([write_run(tmp_path / "run", lines)])
    assert [found.advantage for found in report.traces] == [0.5, -0.5, -0.5, 0.5]
    [first, *others] = report.traces
    assert (first.samples, first.sections, first.summaries, first.forks) == (5, 3, 2, 0)
    assert {(found.samples, found.sections, found.summaries) for found in others} == {(1, 0, 0)}
    assert (report.summary.samples, report.summary.sections, report.summary.summaries) == (8, 3, 2)
    assert report.usable


def test_sections_and_summaries_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run(tmp_path, sectioned())), "--check"]) == 0
    out = capsys.readouterr().out
    assert "5 (3+2)" in out
    assert "samples  7 (3 sections, 2 summaries) of 7 branches" in out


@pytest.mark.parametrize(
    ("trains", "kinds"),
    [
        (Trained.ALL, {"section": 3, "summary": 2}),
        (Trained.SECTIONS, {"section": 3}),
        (Trained.LAST, {"section": 1}),
    ],
)
def test_what_is_not_to_train_is_no_flaw_and_nothing_else_may_be_missing(
    trains: Trained, kinds: dict[str, int], tmp_path: Path
) -> None:
    place = run(tmp_path, sectioned(trains=trains))
    assert main([str(place), "--check"]) == 0
    found = inspect([place]).traces[-1]
    assert (found.sections, found.summaries) == (kinds["section"], kinds.get("summary", 0))
    assert found.samples == sum(kinds.values())


def test_summaries_of_another_seats_model_are_no_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, info = compacted_elsewhere()
    line = trace(1.0, nodes=nodes, calls=calls(nodes), info=info, metrics=METRICS)
    assert main([str(run(tmp_path, line)), "--check"]) == 0
    assert "3 (3+0)" in capsys.readouterr().out


def without_mask(number: int) -> Callable[[Nodes, Record], object]:
    return lambda nodes, record: nodes[number].update(mask=[False] * len(nodes[number]["mask"]), logprobs=[])


def again(nodes: Nodes, record: Record) -> None:
    nodes.append(copy.deepcopy(nodes[19]) | {"parent": 11})
    record["sections"].append(record["sections"][1] | {"first": 20, "last": 20})


UNTRAINED: dict[str, tuple[Line, Flaw, str]] = {
    "a section's answer": (sectioned(without_mask(14)), Flaw.UNTRAINED, "message node 14: none of its tokens"),
    "a summary": (sectioned(without_mask(16)), Flaw.UNTRAINED, "message node 16: none of its tokens"),
    "the last section, alone to train": (
        sectioned(without_mask(19), trains="last"), Flaw.UNTRAINED, "message node 19: none of its tokens",
    ),
}  # fmt: skip
OTHERWISE: dict[str, tuple[Line, str]] = {
    "a section that is not listed": (
        sectioned(lambda nodes, record: record["sections"].pop()),
        "0 sections of conversation ses_1 begin with summary 1",
    ),
    "a first section that is not listed": (
        sectioned(lambda nodes, record: record["sections"].pop(0)),
        "0 sections of conversation ses_1 begin with its beginning",
    ),
    "a summary that is not listed": (
        sectioned(lambda nodes, record: record["summaries"].pop()),
        "a section of conversation ses_1 begins with summary 1, which is not one of it",
    ),
    "a section that stands twice": (
        sectioned(lambda nodes, record: record["sections"].append(record["sections"][1])),
        "message node 12 of section 1 is in another one as well",
    ),
    "a section of the same summary": (sectioned(again), "2 sections of conversation ses_1 begin with summary 0"),
    "a summary that stands twice": (
        sectioned(lambda nodes, record: record["summaries"].append(record["summaries"][0] | {"used": False})),
        "message node 7 of summary 0 is in another one as well",
    ),
    "a section that is not there": (
        sectioned(lambda nodes, record: record["sections"][2].update(first=30, last=31)), "section 2 is not there",
    ),
    "a summary that nobody sampled": (
        sectioned(lambda nodes, record: record["summaries"][0].update(node=9)), "summary 0 is not there",
    ),
    "a section that begins too late": (
        sectioned(lambda nodes, record: record["sections"][0].update(first=4)),
        "message node 2 is an answer of no section",
    ),
    "a section of other tokens": (
        sectioned(lambda nodes, record: record["sections"][1].update(tokens=5)),
        "5 tokens up to message node 14, whose call counted others",
    ),
    "a section before its summary": (
        sectioned(lambda nodes, record: [
            section.update(summary={0: 1, 1: 0}.get(section["summary"])) for section in record["sections"]
        ]),
        "the section of message nodes 12 to 14 comes before its summary",
    ),
    "a summary that trains against the settings": (
        sectioned(lambda nodes, record: record.update(trains="sections")), "summary 0 trains, and only sections should",
    ),
    "an earlier section that trains against the settings": (
        sectioned(lambda nodes, record: record.update(trains="last"), trains="sections"),
        "section 0 trains, and only last should",
    ),
}  # fmt: skip
FOUND = UNTRAINED | {name: (spoilt, Flaw.SECTIONS, said) for name, (spoilt, said) in OTHERWISE.items()}


@pytest.mark.parametrize(("spoilt", "flaw", "said"), FOUND.values(), ids=FOUND)
def test_a_missing_a_doubled_and_an_untrained_one_is_found(
    spoilt: Line, flaw: Flaw, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run(tmp_path, spoilt)), "--check"]) == 1
    printed = capsys.readouterr()
    assert flaw in printed.err
    assert said in printed.out


def test_each_sample_that_is_too_long_is_named(tmp_path: Path) -> None:
    [finding] = inspect([write_run(tmp_path / "run", [episode("a", sectioned())])], max_tokens=5).findings[:1]
    assert finding.flaw is Flaw.TOO_LONG
    assert finding.places[0].endswith(
        "branch 2 (section): 11 tokens, 3 trained ones behind the 5th; "
        "branch 4 (section): 6 tokens, 1 trained ones behind the 5th; "
        "branch 1 (summary): 6 tokens, 1 trained ones behind the 5th; "
        "branch 0 (section): 6 tokens, 1 trained ones behind the 5th"
    )


def test_a_change_of_history_beside_compactions_is_still_a_fork(tmp_path: Path) -> None:
    fork = {"message": 3, "turn": 2, "role": "tool", "how": "other"}
    spoilt = sectioned(lambda nodes, record: record.update(forks=1, first=[fork]))
    assert main([str(run(tmp_path, spoilt)), "--check"]) == 1


def begins_again(nodes: Nodes, record: Record) -> None:
    """Another first message, which its section ends with."""
    other = {"parent": 0} | {key: value for key, value in nodes[1].items() if key != "parent"}
    nodes += [other, copy.deepcopy(nodes[19]) | {"parent": 20}]
    record["sections"][0].update(last=21, tokens=None)


def leaves_a_branch(nodes: Nodes, record: Record) -> None:
    """An answer to another first message, which the first section left behind."""
    begins_again(nodes, record)
    record["sections"][0].update(last=4, left=[21])
    record.update(forks=1)


def test_what_a_section_left_behind_trains_no_more_than_the_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run(tmp_path, sectioned(leaves_a_branch, trains="last"))), "--check", "--allow", "forks"]) == 1
    assert "section 0 trains, and only last should" in capsys.readouterr().out


def changes_a_result(nodes: Nodes, record: Record) -> None:
    nodes += [copy.deepcopy(nodes[13]), copy.deepcopy(nodes[14]) | {"parent": 20}]
    record["sections"][1].update(last=21, tokens=None)


@pytest.mark.parametrize("change", [begins_again, changes_a_result])
def test_what_an_agent_changes_in_a_section_is_a_fork_and_no_damage(
    change: Callable[[Nodes, Record], None], tmp_path: Path
) -> None:
    fork = {"message": 3, "turn": 2, "role": "tool", "how": "other"}

    def forks(nodes: Nodes, record: Record) -> None:
        record.update(forks=1, first=[fork])
        change(nodes, record)

    [found] = inspect([write_run(tmp_path / "run", [episode("a", sectioned(forks))])]).traces
    assert Flaw.FORKS in found.findings
    assert Flaw.SECTIONS not in found.findings


def test_a_conversation_whose_first_call_was_refused_begins_with_its_summary(tmp_path: Path) -> None:
    def refused(nodes: Nodes, record: Record) -> None:
        record["summaries"][0].update(planned=False)
        del record["sections"][0]
        for number in (2, 4):
            nodes[number].update(sampled=False, mask=[False] * len(nodes[number]["mask"]), logprobs=[])

    [found] = inspect([write_run(tmp_path / "run", [episode("a", sectioned(refused))])]).traces
    assert Flaw.SECTIONS not in found.findings


@pytest.mark.parametrize(
    ("trains", "masked"),
    [(Trained.ALL, ()), (Trained.SECTIONS, (7, 16)), (Trained.LAST, (2, 4, 7, 12, 14, 16))],
)
async def test_what_is_not_to_train_is_masked_for_whoever_was_sent_it_before(
    trains: Trained, masked: tuple[int, ...]
) -> None:
    nodes, info = compacted()
    kept: Any = trace_of(*nodes, info=info)
    sent = EpisodeAssembly()

    async def send(delta: dict[str, Any]) -> None:
        sent.apply(unpack(pack(delta)))

    async with DeltaStreamer(lambda: [kept], send) as streamer:
        streamer.watch(kept)
        await streamer.flush()
        assert len(sent.traces[kept.id]["nodes"]) == len(nodes)
        kept.info["history"]["trains"] = trains
        await mask_untrained(kept)
    found = WireTrace.model_validate(sent.traces[kept.id] | {"pending": []})
    for one in (kept, found):
        left = [number for number, node in enumerate(one.nodes) if node.sampled and any(node.mask)]
        assert left == [number for number in (2, 4, 7, 12, 14, 16, 19) if number not in masked]
        assert not any(len(one.nodes[number].logprobs) for number in masked)
    assert training_samples(found) == training_samples(kept)


@pytest.mark.parametrize(("trains", "given"), [("all", 7), ("sections", 5), ("last", 1)])
async def test_an_openenv_trainer_gets_no_answer_that_is_not_to_train(trains: str, given: int) -> None:
    nodes, info = compacted()
    kept: Any = trace_of(*nodes, info={"history": info["history"] | {"trains": trains}})
    await mask_untrained(kept)
    assert len([*_turns("main", kept)]) == given

"""Answers as language models write them, from pairs that were made before the rules were read, by three people.

The last file was held out until the rules were done: 99.0 % of it agreed on its first run, and nothing wrong was
rewarded.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from mathverdict.verdict import verify_text

CORPORA = {"blind": 600, "stranger": 590, "stranger_2": 600}
"""The files of pairs, and how many each has at least."""


def _rows(corpus: str) -> list[dict[str, Any]]:
    path = Path(__file__).parent / "data" / f"{corpus}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _is_right(answer: str, reply: str) -> bool:
    return verify_text(answer, reply, "reply" if "boxed{" in reply or "fbox{" in reply else "file").right


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_pairs_are_as_many_and_as_mixed_as_they_should_be(corpus: str) -> None:
    rows = _rows(corpus)
    assert len({(row["answer"], row["reply"]) for row in rows}) == len(rows) >= CORPORA[corpus]
    assert 0.45 < sum(row["right"] for row in rows) / len(rows) < 0.55
    assert len({row["kind"] for row in rows}) >= 40


@pytest.mark.parametrize("corpus", CORPORA)
def test_replies_of_models_are_judged_as_labelled_and_nothing_wrong_is_rewarded(corpus: str) -> None:
    rows = _rows(corpus)
    verdicts = [_is_right(row["answer"], row["reply"]) for row in rows]
    rewarded = [row for row, right in zip(rows, verdicts, strict=True) if right and not row["right"]]
    refused = [row for row, right in zip(rows, verdicts, strict=True) if not right and row["right"]]
    print(f"{corpus}: {len(rows)} pairs, {len(rewarded)} wrong ones rewarded, {len(refused)} right ones refused")
    assert rewarded == []
    assert 1 - len(refused) / len(rows) >= 0.98

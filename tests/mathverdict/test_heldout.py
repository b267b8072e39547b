"""Pairs that the rules were not made for: agreement with the labels, and no reward for a wrong answer.

Half of `heldout.jsonl` (by group, `random.Random(1010)`) was for tuning; the other for measuring only.
"""

import json
from pathlib import Path

import pytest
from mathverdict.verdict import verify_text

DATA = Path(__file__).parent / "data"
ROWS = [json.loads(line) for line in (DATA / "heldout.jsonl").read_text(encoding="utf-8").splitlines()]
CHEATS = [json.loads(line) for line in (DATA / "cheats.jsonl").read_text(encoding="utf-8").splitlines()]
SPELLINGS = [json.loads(line) for line in (DATA / "spellings.jsonl").read_text(encoding="utf-8").splitlines()]
AGREEMENT = {"tune": 0.995, "held": 0.98}


@pytest.mark.parametrize("split", AGREEMENT)
def test_held_out_pairs_are_judged_as_labelled_and_nothing_wrong_is_rewarded(split: str) -> None:
    rows = [row for row in ROWS if row["split"] == split]
    verdicts = [verify_text(row["reference"], row["answer"], "file").right for row in rows]
    rewarded = [row for row, right in zip(rows, verdicts, strict=True) if right and not row["equal"]]
    refused = [row for row, right in zip(rows, verdicts, strict=True) if not right and row["equal"]]
    print(f"{split}: {len(rows)} pairs, {len(rewarded)} wrong ones rewarded, {len(refused)} right ones refused")
    assert len(rows) > 500
    assert rewarded == []
    assert 1 - len(refused) / len(rows) >= AGREEMENT[split]


@pytest.mark.parametrize("row", SPELLINGS, ids=lambda row: f"{row['reference']} as {row['answer']}")
def test_a_right_answer_in_another_spelling_is_right(row: dict[str, str]) -> None:
    assert verify_text(row["reference"], row["answer"], "file").right


def test_no_cheat_is_rewarded_in_a_file_or_in_a_box() -> None:
    assert len(CHEATS) >= 300
    for row in CHEATS:
        texts = [(row["answer"], "file")]
        if "boxed" in row["answer"]:
            texts.append((row["answer"], "reply"))
        else:
            texts.append((rf"\boxed{{{row['answer']}}}", "reply"))
        for text, source in texts:
            assert not verify_text(row["reference"], text, "reply" if source == "reply" else "file").right, row


@pytest.mark.parametrize(
    "reply",
    [
        r"\boxed{5} is wrong.",
        r"It is not \boxed{5}.",
        r"\boxed{5}. Wait, that is wrong.",
        r"\boxed{5}, no, 6",
        r"\boxed{5} isn't it",
    ],
)
def test_a_box_that_is_taken_back_is_no_answer(reply: str) -> None:
    verdict = verify_text("5", reply, "reply")
    assert (verdict.right, verdict.reason) == (False, "taken_back")


@pytest.mark.parametrize(
    ("reference", "reply"),
    [
        ("1, -2", r"So $x=\boxed{1}$ or $x=\boxed{-2}$."),
        ("x=1, y=-2", r"$y=\boxed{-2}$ and $x=\boxed{1}$"),
        ("3, 7", r"The least is \boxed{3} and the greatest is \boxed{7}."),
        (r"The least is \boxed{3} and the greatest is \boxed{7}.", "3, 7"),
        (r"x=\boxed{3}, y=\boxed{7}", "(3,7)"),
    ],
)
def test_several_boxes_that_make_one_answer_are_read_together(reference: str, reply: str) -> None:
    assert verify_text(reference, reply, "reply" if "boxed" in reply else "file").right

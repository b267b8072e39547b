"""Texts made to cost time: twice as long costs at most three times as much, whatever is repeated."""

import time
from collections.abc import Callable

import pytest
from mathverdict.verdict import Source, verify_text

PIECES = [
    " ", "\n", "\t ", ",", ". ", "1", "1 ", "1,", "a ", "abc ", "$", "$x ", r"\$", "(", ")", "{", r"\{", "[1,", "]1,",
    "=", "x=1,", "+", "^", "√(", "sqrt(", "½", "**a", " **a", "__a", "`", "<answer>", "#### ", "\\\\", r"\[", r"\(",
    "$$", "...", r"\boxed{", r"\boxed{1} ", r"\boxed{1},", r"x=\boxed{1}", "\\boxed{1}\n", r"\text{", r"\text{a}",
    r"\mathbf{{", r"\hat{", r"\frac{1}{", r"\pm", r"\cup", r"\begin{cases}=", r"\begin{pmatrix}1&", r"\sum_{",
    r"\int ", r"{\choose ", "x\\ne 1,", "is 1 ", "the answer is 7. ", "actually, it is ", "no, ", "wait, ", "answer ",
    "Let me know ", "Hope this helps. ", "so, ", "yes, it ", "or ", "and ", "hundred ", "the winner ", "N m ", "m^2 ",
    "24 distinguishable ", r"\text{m} ", "1 h ", "B. not ", "(A) ", "A, B, ", "mod ", "1:", "for all ", "= ", ": ",
    "both ", "~", "- ", "m m^", "J/",
]  # fmt: skip
HEADS = {"as it is": "{}", "behind a number": "24 {}", "stated": "The answer is {}", "boxed": r"\boxed{{24{}}}"}
REFERENCES = ["24", r"\{1, 2\}", "5 J", "(B)", "Yes", r"x\le 3"]


def seconds_of(work: Callable[[], object]) -> float:
    """CPU seconds, the least of three runs."""
    found = []
    for _ in range(3):
        started = time.process_time_ns()
        work()
        found.append((time.process_time_ns() - started) / 1e9)
    return min(found)


def judged(reference: str, text: str) -> float:
    source: Source = "any" if "boxed" in text else "file"
    return seconds_of(lambda: verify_text(reference, text, source))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("length", [900, 16_000])
def test_what_is_twice_as_long_costs_at_most_three_times_as_much(head: str, length: int) -> None:
    slow = []
    # Below what an ordinary text costs a clock tells nothing apart.
    ordinary = judged("24", "It is what it is, as far as we know. " * (length // 37))
    for index, piece in enumerate(PIECES):
        reference = REFERENCES[index % len(REFERENCES)]
        short, long = (HEADS[head].format(piece * (size // len(piece)) + "\x01") for size in (length, 2 * length))
        # A busy machine may disturb one measurement, not all of them.
        if all(judged(reference, long) > 3 * max(judged(reference, short), ordinary) for _ in range(5)):
            slow.append(piece)
    assert slow == []


def test_a_unit_of_many_words_is_read_at_once() -> None:
    assert verify_text("24", "24 distinguishable arrangements", "file").right
    assert not verify_text("24", "24 distinguishable " * 12 + "arrangements", "file").right

"""What a judge's reply says: the letter alone on its last line, or nothing."""

import pytest
from opencode_rubrics.judge import read_verdict


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("A", "A"), ("reason\n\nB\n", "B"), ("**C**", "C"), ("Verdict: A.", "A"), ("Final verdict: **B**", "B"),
        (r"\boxed{A}", "A"), ("<think>B</think>\nA", "A"), ("(A)", "A"), ("a", "A"),
        ("A\nor rather\nB", None),
        ("This is a wrong answer", None), ("A or B", None), ("<think>B or\nA", None),
        ("A\nbut maybe not", None), ("", None), ("D", None),
    ],
)  # fmt: skip
def test_only_a_letter_alone_on_the_last_line_is_a_verdict(text: str, letter: str | None) -> None:
    assert read_verdict(text, "ABC") == letter

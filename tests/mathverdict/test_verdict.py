"""Answers beside those that were once misjudged, right and wrong: corrections, units, dates, letters, notations."""

import time

import pytest
from mathverdict.verdict import verify_text


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("2024-02-29", "1993"),
        ("1000", r"1000\%"),
        ("2", r"2^\circ"),
        ("12:30", "12/30"),
        ("12", r"\boxed12"),
        ("2", r"\boxed{2} Actually the answer is 3."),
        (r"\frac{\pi}{6}", r"60^\circ"),
        (r"30^\circ", r"30\pi"),
        (r"\pi", r"\pi^\circ"),
        (r"\begin{pmatrix}0&1\\1&0\end{pmatrix}", "I"),
        (r"\begin{pmatrix}1&0\\0&1\end{pmatrix}", "I_3"),
        ("250 J", r"250\ N\cdot s"),
        ("90 km/h", "25 m s^{-2}"),
        ("440 Hz", "440 s"),
        ("100 kPa", "10 bar"),
        ("Alice", "Bob wins."),
        ("(-1,5)", "the point (5, -1)"),
        (r"\{0,2\}", r"\{0,\pm 2\}"),
        ("56", r"{8 \choose 4}"),
        (r"\{2k\pi : k\in\mathbb{Z}\}", r"x = (2n+1)\pi, n\in\mathbb{Z}"),
    ],
)
def test_what_only_looks_like_the_answer_is_wrong(reference: str, answer: str) -> None:
    assert not verify_text(reference, answer, "file").right
    assert not verify_text(reference, answer if "boxed" in answer else rf"\boxed{{{answer}}}", "reply").right


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("9.8 m/s^2", r"Final Answer: The final answer is $9.8\ \mathrm{m/s^2}$. I hope it is correct."),
        (r"\frac{3}{7}", "The probability is **3/7**."),
        (r"(0,\infty)", r"\mathbb{R}^+"),
        (r"(-\infty,2]", r"]-\infty,2]"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\left[\begin{array}{cc}1&2\\3&4\end{array}\right]"),
        ("1", r"\gcd(3,5)"),
        ("1", r"\lceil 0.5\rceil"),
        ("120", r"\dbinom{10}{3}"),
        ("2", "two"),
        ("2", r"\color{red}{2}"),
        ("3+4i", "3+i4"),
        (r"\pi", r"\pi{}"),
        ("2.25 h", "135 min"),
        ("2.5 kg", "2500 g"),
        ("300 mL", "0.3 L"),
        ("12 m/s", "43.2 km/h"),
        ("5 m/s", r"5\,\mathrm{m\,s^{-1}}"),
        (r"22.5^\circ", r"22^\circ 30'"),
        ("A, C", r"\text{A and C}"),
        (r"\frac{\pi}{3}+2k\pi", r"\frac{\pi}{3}+2n\pi"),
        ("f(x)=cx", "f(x)=kx"),
        ("diverges", "The series diverges"),
        ("diverges", "divergent"),
    ],
)
def test_the_right_answer_in_other_words_is_right(reference: str, answer: str) -> None:
    assert verify_text(reference, answer, "file").right


@pytest.mark.parametrize(
    "piece", [" ", "\n", r"\mathbf{{", r"\hat{", "actually, it is ", "the answer is 7. ", "$x ", "]1,", "**a"]
)
def test_no_long_answer_takes_long(piece: str) -> None:
    started = time.process_time()
    for text in (piece * (30_000 // len(piece)) + "x", rf"\boxed{{7}}{piece * (30_000 // len(piece))}x"):
        assert not verify_text("8", text, "file").right
    assert time.process_time() - started < 5

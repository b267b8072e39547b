"""Answers beside those that were once misjudged, right and wrong: corrections, units, dates, letters, notations."""

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
    ("reference", "answer", "right"),
    [
        # Falling units of one dimension are one amount; other quantities side by side are several.
        ("2.25 h", "2 hours and 15 minutes", True),
        ("6 m and 4 m", "10 m", False),
        ("10 m", "6 m and 4 m", False),
        ("6 m and 400 cm", "10 m", False),
        ("431.5 nm and 432.5 nm", "433 nm and 431 nm", False),
        ("431.5 nm and 432.5 nm", "432.5 nm, 431.5 nm", True),
        # A letter before figures alone in brackets is a function's value, and no product with them.
        (r"V(0)e^{-t/\tau}", "0", False),
        ("0", r"V(0)e^{-t/\tau}", False),
        (r"\psi(0)+3", "3", False),
        ("y(1)e^{x}", "ye^{x}", False),
        (r"V(0)e^{-t}", "e^{-t}V(0)", True),
        ("a(b+2)", "ab+2a", True),
        # Equations that say nothing of their letters are equal only to themselves.
        ("V(0)=5", "V(0)=7", False),
        ("x-x=1", "x-x=2", False),
        ("0x=3", "0x=4", False),
        ("2x=3y", "4x=6y", True),
        # A list counts how often, a set does not.
        ("2,2,3", "2,3,3", False),
        ("2,2,3", "2,3", False),
        ("2,2,3", "3,2,2", True),
        ("2,2,3", r"\{2,3\}", False),
        (r"\{2,3\}", r"\{3,2,2\}", True),
        # A power behind a letter is a factor if its exponent has a letter.
        (r"k \cdot 3^{k-2}", "k3^{k-2}", True),
        (r"(k+1)\cdot 3^k", "(k+1)3^{k}", True),
        ("27x", "x3^3", False),
        # As programs print it, with every backslash twice.
        (r"\frac{5}{7}", r"\\frac{5}{7}", True),
        (r"\frac{5}{7}", r"The answer is \\(\\frac{5}{7}\\).", True),
        (r"-\frac{5}{7}", r"x = -\\boxed{\\frac{5}{7}}", True),
        (r"\frac{5}{7}", r"x = -\\boxed{\\frac{5}{7}}", False),
        (r"\{4,6\}", r"\\{4, 6\\}", True),
        (r"\begin{pmatrix}1\\3\end{pmatrix}", r"\\begin{pmatrix}1\\\\3\\end{pmatrix}", True),
        (r"\begin{pmatrix}1\\3\end{pmatrix}", r"\begin{pmatrix}1\\4\end{pmatrix}", False),
        (r"\begin{pmatrix}ab\\cd\end{pmatrix}", r"\begin{pmatrix}ba\\cd\end{pmatrix}", True),
        ("12", r"$\$12$", True),
        (r"\frac{1}{4} or 0.25", "25/100", True),
        (r"$\frac{1}{4}$ or $0.25$", "0.25", True),
        ("3 or 4", "3", False),
        ("C", r"It is \boxed{17}. So, the answer is \boxed{(C)}.", True),
        ("17", r"It is \boxed{17}. So, the answer is \boxed{(C)}.", True),
        ("D", r"It is \boxed{17}. So, the answer is \boxed{(C)}.", False),
        ("C", r"It is \boxed{B}. So, the answer is \boxed{(C)}.", False),
        ("Yes", "Yes, the sum converges.", True),
        ("No", "No, it does not converge.", True),
        ("Yes", "Yes, but it diverges.", False),
        ("Yes", "Yes, it diverges.", True),
        ("Yes", "Yes, this is incorrect.", False),
        ("No", "No, the series diverges.", True),
        ("Yes", "Yes, it does not converge.", False),
        ("No", "No, it converges.", False),
        (r"\sqrt{5-\sqrt{2}}", "√(5-√2)", True),
        (r"\sqrt{5-\sqrt{2}}", "√(5-√(2))", True),
        (r"\sqrt{5-\sqrt{2}}", "√(5)-√(2)", False),
        # The text of a choice may deny what it likes; a sentence about the choice denies it.
        ("D", "D. The limit does not exist", True),
        ("D", "(D) No, because the terms grow", True),
        ("D", "D. It grows rather than shrinks", True),
        ("D", "D) a median instead of a mean", True),
        ("D", "D is not the answer", False),
        ("D", "D. not A", False),
        ("D", "D. No, wait, A", False),
    ],
)
def test_what_real_outputs_hold_is_judged_as_it_is_meant(reference: str, answer: str, right: bool) -> None:
    assert verify_text(reference, answer).right == right


@pytest.mark.parametrize(
    "file",
    [
        "$$\n{}\n$$\n",
        "\\[\n  {}\n\\]",
        "\\begin{{equation*}}\n{}\n\\end{{equation*}}",
        "The answer is:\n\n$$\n{}\n$$",
        "## Answer\n\\[\n{}\n\\]",
        "The probability of this is\n$$\n{}\n$$",
    ],
)
def test_a_formula_may_be_displayed_on_lines_of_its_own(file: str) -> None:
    assert verify_text(r"\frac{5}{7}", file.format(r"\dfrac{5}{7}"), "file").right
    assert not verify_text(r"\frac{5}{7}", file.format(r"\dfrac{5}{8}"), "file").right
    assert verify_text(file.format(r"x^2+1").split("\n", 2)[-1] and "$$\nx^2+1\n$$", "1+x^2", "file").right


@pytest.mark.parametrize(
    ("question", "reference", "answer"),
    [
        ("What percent of the tanks are empty?", "35", r"35\%"),
        ("By what percent does the area grow?", "44", "44 percent"),
        ("Find the chance, expressed as a percentage, of rain.", "12", r"12.0\%"),
        ("In cents, what does a nail cost?", "7", "7 cents"),
        ("How many cents are left?", "85", "$0.85"),
        ("What was it at noon, in degrees Celsius?", "-4", "-4 degrees"),
        ("Which holds?\n(A) It is, but maybe not always\n(B) Never", "A", "(A) It is, but maybe not always"),
    ],
)
def test_a_question_tells_the_unit_and_the_options(question: str, reference: str, answer: str) -> None:
    assert verify_text(reference, answer, question=question).right
    assert not verify_text(reference, answer).right


@pytest.mark.parametrize(
    ("question", "reference", "answer"),
    [
        ("What percent of the tanks are empty?", "35", "0.35"),
        ("What percent of the tanks are empty?", "35", r"36\%"),
        ("20 percent of 300 apples are red. How many are red?", "60", r"60\%"),
        ("If the percentage of boys is 40%, how many of 100 are girls?", "60", r"60\%"),
        ("A nail costs 7 cents. How many dollars do 100 cost?", "7", "7 cents"),
        ("Round to the nearest cent: what is the price?", "7", "7 cents"),
        ("Which holds?\n(A) It may be\n(B) Never, but maybe not", "A", "(A) Never, but maybe not"),
    ],
)
def test_a_question_makes_nothing_right_that_it_does_not_ask_for(question: str, reference: str, answer: str) -> None:
    assert not verify_text(reference, answer, question=question).right


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("0.67", "2/3", True),
        ("3.142", r"\pi", True),
        ("0.68", "2/3", False),
        ("3.12", r"\pi", False),
        ("3", "2.99", False),
    ],
)
def test_what_rounds_to_the_reference_is_right_only_as_an_option(reference: str, answer: str, right: bool) -> None:
    assert verify_text(reference, answer, unrounded=True).right == right
    assert not verify_text(reference, answer).right


def test_a_change_says_which_one_it_is() -> None:
    reference = r"20\%\text{ increase}"
    assert verify_text(reference, r"\boxed{20\%\text{ increase}}").right
    for answer in (r"20\%", r"20\%\text{ decrease}", r"-20\%"):
        assert not verify_text(reference, rf"\boxed{{{answer}}}").right
    assert not verify_text(r"20\%", rf"\boxed{{{reference}}}").right


def test_the_letter_of_a_function_is_free() -> None:
    assert verify_text("f(x)=3x-2", r"\boxed{f(t)=3t-2}").right
    assert not verify_text("f(x)=3x-2", r"\boxed{f(t)=3x-2}").right
    assert not verify_text("f(x)=ax", r"\boxed{f(a)=a^2}").right

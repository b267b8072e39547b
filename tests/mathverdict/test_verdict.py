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


GOATS = "How many goats are there on the farm of 50 animals, some of them chickens?"
BOARD = "How long is each piece of the board of 126 inches, in feet?"
TALLEST = "Ada is taller than Ben. Who is the second tallest?"
PRIME = "Is 221 prime?"
AREA = "The area is\n\\[\n\\int_0^2(2x-x^2)dx=\\left[x^2-\\frac{x^3}{3}\\right]_0^2"


@pytest.mark.parametrize(
    ("question", "reference", "reply", "right"),
    [
        # The words of the question say of what the one value of a sentence is.
        (GOATS, "18", "There are 18 goats.", True),
        (GOATS, "18", "\n".join(["We count."] * 20) + "\n**There are 18 goats on the farm.**", True),
        (GOATS, "18", "\n".join(["We count."] * 20) + "\n18", False),
        (GOATS, "18", "There are 18 or 19 goats.", False),
        (GOATS, "18", "There are 18 goats, 19 goats.", False),
        (GOATS, "18", "There are 18\u201319 goats.", False),
        (GOATS, "18", "There are 17 goats. There are 18 goats.", False),
        (GOATS, "18", "There are not 18 goats.", False),
        (GOATS, "18", "Maybe there are 18 goats.", False),
        (GOATS, "18", "There are at least 18 goats.", False),
        (GOATS, "18", "There are half of 18 goats.", False),
        (GOATS, "18", "There are 18 dozen goats.", False),
        (GOATS, "18", "There are 18% goats.", False),
        (GOATS, "18", "There are 2 * 18 goats.", False),
        (GOATS, "18", "The chickens ate 18 goats.", False),
        (GOATS, "18", "16\n17\n18", False),
        (BOARD, "2.625 feet", "10.5/4 = 2.625, therefore each piece is 2.625 feet long.", True),
        (BOARD, "2.625 feet", "10.5/4 = 2.625, therefore each piece is 2.625 inches long.", False),
        (BOARD, "2.625 feet", "Each piece of the board is **2.625** inches.", False),
        (BOARD, "2.625 feet", "Each piece of the board is **2.625 inches** in feet.", False),
        (TALLEST, "Ada", "So **Ada** is the second tallest.", True),
        (TALLEST, "Ada", "So **Ada** is the second.", False),
        (TALLEST, "Ada", "Ada or Ben is the second tallest.", False),
        (TALLEST, "Ada", "Ben is the second tallest. Ada is the second tallest.", False),
        (PRIME, "No", "We test 13. No, 221 is not a prime number.", True),
        (PRIME, "No", "We test 13. No, 221 is a prime number.", False),
        (PRIME, "No", "We test 13. Yes, 221 is not a prime number.", False),
        # The last clause or display is what a text comes to.
        ("", "(2,-1)", "It changes the sign, giving $(2,-1)$.", True),
        ("", "(2,-1)", "It changes the sign, giving $(2,-1)$ or $(-2,1)$.", False),
        ("", "97", "It's definitely **97**.", True),
        ("", "97", "It's definitely not **97**.", False),
        ("", "5", "It isn't 4, so it is 5.", False),
        ("", r"\frac43", AREA + "=\\frac43\n\\]", True),
        ("", r"\frac43", AREA + "\n\\]", False),
        ("", r"\frac43", "The area is not\n\\[\n\\frac43\n\\]", False),
        ("", r"\frac43", "The area is\n\\[\n\\frac53\n\\]\nor\n\\[\n\\frac43\n\\]", False),
    ],
)
def test_a_sentence_states_its_value_only_for_what_was_asked(
    question: str, reference: str, reply: str, right: bool
) -> None:
    assert verify_text(reference, reply, question=question).right == right


MEAN = "Find the mean and the median of 3, 8, 8, 10, 16."
EXTREMES = "What are the maximum and minimum of f on [0,2]?"
TERMS = "Find the first three terms."
LARGER = "Find the larger number of two."
CHOICES = "If $3^x=81$, then x is: A) 2 B) 3 C) 4 D) 5"


@pytest.mark.parametrize(
    ("question", "reference", "reply", "right"),
    [
        (MEAN, "9, 8", "8, 9", False),
        (MEAN, "9, 8", "Median = 8, mean = 9", True),
        (MEAN, "9, 8", "Mean = 8, median = 9", False),
        (MEAN, "9, 8", "The mean is 9 and the median is 8.", True),
        (MEAN, "9, 8", "The mean is 9 or 8 and the median is 8.", False),
        (EXTREMES, "maximum 2, minimum -2", "Minimum: $-2$ (at $x=1$); Maximum: $2$ (at $x=2$)", True),
        (EXTREMES, "maximum 2, minimum -2", "The minimum is $2$ and the maximum is $-2$.", False),
        (EXTREMES, "maximum 2, minimum -2", "Minimum: $-2$ (or $-3$); Maximum: $2$", False),
        (EXTREMES, "maximum 2, minimum -2", "Minimum: $-2$; Maximum: at least $2$", False),
        ("", "(2,3)", "y=3, x=2", True),
        ("", "(2,3)", "y=2, x=3", False),
        ("", "2, 3", "x=3, y=2", False),
        ("", "1, 4", r"\lambda_1=4, \lambda_2=1", True),
        ("List the primes in increasing order.", "2, 3, 5", "5, 3, 2", False),
        ("List the primes.", "2, 3, 5", "5, 3, 2", True),
        ("Find the values of $a$ and $b$.", "2, 3", "3, 2", False),
        (TERMS, "2, 6, 18", "18, 6, 2", False),
        (TERMS, "2, 6, 18", r"2, 6, 18, \ldots", True),
        (TERMS, "2, 6, 18", r"2, 6, \ldots", False),
        ("List the divisors.", "2, 6, 18", r"2, 6, 18, \ldots", False),
        (LARGER, "17", r"The smaller is \boxed{9}. The larger is then $26-9=\boxed{17}$.", True),
        (LARGER, "9", r"The smaller is \boxed{9}. The larger is then $26-9=\boxed{17}$.", False),
        (LARGER, "17", r"The larger is \boxed{9}. The larger number is \boxed{17}$.", False),
        (LARGER, "17", r"The answer is \boxed{9}. The larger is \boxed{17}.", False),
        (LARGER, "17", r"One possibility is \boxed{9}. The larger is \boxed{17}.", False),
        ("", "17", r"The smaller is \boxed{9}. The larger is \boxed{17}.", False),
        (CHOICES, "C", r"\boxed{4}", True),
        (CHOICES, "C", r"\boxed{3}", False),
        (CHOICES, "C", r"\boxed{3, 4}", False),
        (CHOICES, "C", r"\boxed{B) 4}", False),
        (CHOICES.replace("3 C", "4 C"), "C", r"\boxed{4}", False),
        ("", "BD", "B and D", True),
        ("", "BD", "B or D", False),
        ("", "BD", "B, C, D", False),
    ],
)
def test_the_question_tells_order_names_and_steps(question: str, reference: str, reply: str, right: bool) -> None:
    assert verify_text(reference, reply, question=question).right == right


@pytest.mark.parametrize(
    ("reference", "answers", "wrong"),
    [
        ("0, 2, -2", [r"0, \pm 2", r"x=0 \text{ or } x=\pm 2"], [r"\pm 2", r"0, \pm 2, 3"]),
        (r"\frac{5}{6}", [r"5\over 6", r"{5\over 6}"], [r"6\over 5", r"x=5\over 6"]),
        ("2.996", [r"x \approx 2.996"], [r"x \approx 3", r"2.9 \approx 2.996"]),
        (r"\frac{2dv}{v^2-c^2}", [r"\frac{d}{v-c}+\frac{d}{v+c}"], [r"\frac{d}{v-c}-\frac{d}{v+c}"]),
        ("2x", ["2x"], [r"\frac{d}{dx}x^2"]),
        (r"\frac12\sin^2 x+C", [r"-\frac14\cos 2x+C"], [r"\frac14\cos 2x+C", r"-\frac14\cos 2x"]),
        ("x^2+C", ["x^2+5+C", "x^2+c"], ["x^2+x+C", "x^2+5"]),
        ("x^2+c", ["x^2+c"], ["x^2+5+c"]),
        (
            r"\begin{cases} x-2 & x\ge 2 \\ 2-x & x<2\end{cases}",
            [r"|x-2|=\begin{cases}2-x & \text{if } x<2\\ x-2 & \text{if } x\ge2\end{cases}"],
            [r"\begin{cases}x-2 & x<2\\ 2-x & x\ge2\end{cases}"],
        ),
        (
            r"(-\infty,-3)\cup(-3,3)\cup(3,\infty)",
            [r"\text{all real } x \text{ with } x \neq \pm 3"],
            [r"\text{all real } x \text{ with } x \neq 3"],
        ),
        (r"[0,7]\cup[8,9], [2,4)", [r"[2,4), [0,7]\cup[8,9]"], [r"[0,7], [8,9]\cup[2,4)"]),
        (
            r"\exists x\in\mathbb{R}: x^2<0",
            [r"\exists x\in\mathbb{R}\text{ such that } x^2<0"],
            [r"\forall x\in\mathbb{R}\text{ such that } x^2<0"],
        ),
        ("50", [r"\mathrm{Answer: } 50"], [r"\mathrm{Not: } 50"]),
        (r"\text{None}", [r"\text{no such integers}"], [r"\text{one such integer}"]),
        ("1, -2", ["$x=1$ (with multiplicity 2) and $x=-2$"], ["$x=1$ (or 2) and $x=-2$"]),
    ],
)
def test_forms_of_model_outputs_mean_what_they_say(reference: str, answers: list[str], wrong: list[str]) -> None:
    assert [answer for answer in answers if not verify_text(reference, rf"\boxed{{{answer}}}").right] == []
    assert [answer for answer in wrong if verify_text(reference, rf"\boxed{{{answer}}}").right] == []


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        (r"3\mathbf{i}-\mathbf{k}", "(3,0,-1)", True),
        (r"3\hat{i}-\hat{k}", r"\langle 3,0,-1\rangle", True),
        (r"3\mathbf{i}-\mathbf{k}", "(3,1,-1)", False),
        (r"2\vec{i}", "(2,0)", True),
        ("2i", "(2,0)", False),
        (r"2n+1, n\in\mathbb{N}", r"2k+1, k\in\mathbb{N}", True),
        ("2k+1", "2k+1 where k is a natural number", True),
        (r"2n+1, n\in\mathbb{N}", r"2k, k\in\mathbb{N}", False),
        (r"\mathbb{R}\backslash\{0\}", r"(-\infty,0)\cup(0,\infty)", True),
        (r"\mathbb{R}\setminus\{0\}", r"\mathbb{R}-\{1\}", False),
    ],
)
def test_vectors_with_no_part_along_an_axis_natural_letters_and_left_out_points(
    reference: str, answer: str, *, right: bool
) -> None:
    assert verify_text(reference, answer).right is right

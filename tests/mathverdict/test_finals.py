"""What counts as an answer in a reply, a file and a reference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mathverdict.errors import EmptyReference
from mathverdict.finals import finals_of_file, finals_of_reply, reference_value
from mathverdict.normalize import normalize
from mathverdict.values import read_number, same_number
from mathverdict.verdict import verify_text


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        (r"so \boxed{3}", ("3",)),
        (r"\boxed{\frac{1}{2}}", (r"\frac{1}{2}",)),
        (r"\boxed{\{1, 2\}}", (r"\{1, 2\}",)),
        (r"\boxed{\boxed{7}}", ("7",)),
        (r"\fbox{9}", ("9",)),
        (r"\boxed 5", ("5",)),
        ("first \\boxed{3}.\nThen\n\\boxed{4}", ("4",)),
        (r"<think>\boxed{1}</think> it is \boxed{2}", ("2",)),
        (r"\boxed{4} and \boxed{5}", ("4", "5")),
        (r"\boxed{4} = \boxed{4}", ("4",)),
        ("Final answer: \\boxed{5}\n\ntext\n\nFinal answer: \\boxed{4}", ("5", "4")),
        ("\\boxed{5}\n\n\\boxed{4}", ("5", "4")),
    ],
)
def test_the_final_boxes_of_a_reply_are_its_answer(reply: str, answers: tuple[str, ...]) -> None:
    assert finals_of_reply(reply).answers == answers


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        (r"<think>\boxed{1}", "unfinished_thinking"),
        (r"<think>\boxed{1}</think>", "empty"),
        ("the answer is 3", "no_box"),
        (r"\boxed{3", "unbalanced_box"),
        (r"\boxed{3} and \boxed{\frac{1}{2}", "unbalanced_box"),
        (r"\boxed{}", "empty"),
        (r"\boxedfoo{3}", "no_box"),
    ],
)
def test_a_reply_without_a_final_box_says_why(reply: str, reason: str) -> None:
    found = finals_of_reply(reply)
    assert (found.answers, found.reason) == ((), reason)


@pytest.mark.parametrize(
    ("content", "answers"),
    [
        ("17\n", ("17",)),
        ("\ufeff17\n", ("17",)),
        ("3\n4\n", ("3, 4",)),
        ("x = 1,\ny = 2", ("x = 1, y = 2",)),
        ("work\n\nThe answer is 17.", ("17.",)),
        ("work\n#### 17", ("17",)),
        ("<answer> 17 </answer>", ("17",)),
        ("<answer>16</answer><answer>17</answer>", ("16", "17")),
        ("\\begin{pmatrix}1\\\\\n2\\end{pmatrix}", ("\\begin{pmatrix}1\\\\ 2\\end{pmatrix}",)),
    ],
)
def test_a_file_may_hold_the_bare_answer_or_mark_it(content: str, answers: tuple[str, ...]) -> None:
    assert finals_of_file(content).answers == answers


def test_a_long_file_without_a_mark_has_no_answer() -> None:
    assert finals_of_file("\n".join(f"line {n}" for n in range(40))).reason == "no_answer_marked"


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("42", "42"),
        ("2 + 2 = 4\n#### 4", "4"),
        ("<answer>5</answer>", "5"),
        (r"so \boxed{6} and in the end \boxed{7}", "7"),
        ("  \n", ""),
    ],
)
def test_a_reference_may_be_a_whole_solution(reference: str, value: str) -> None:
    assert reference_value(reference) == value


@pytest.mark.parametrize("reply", [r"\boxed{4} \boxed{5}", r"\boxed{5}, no, \boxed{4}", "\\boxed{5}\n\\boxed{4}"])
def test_different_final_answers_conflict_and_are_not_right(reply: str) -> None:
    verdict = verify_text("4", reply, "reply")
    assert (verdict.right, verdict.reason, verdict.conflicting) == (False, "conflicting", True)


@pytest.mark.parametrize("reply", [r"\boxed{4} = \boxed{\frac{8}{2}}", "\\boxed{4.0}\n\\boxed{4}"])
def test_the_same_answer_twice_is_no_conflict(reply: str) -> None:
    assert verify_text("4", reply, "reply").right


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


def test_a_reference_that_states_nothing_is_refused() -> None:
    with pytest.raises(EmptyReference):
        verify_text(" ", "4", "file")


@given(st.text(max_size=60))
def test_no_text_makes_extraction_or_spelling_raise(text: str) -> None:
    finals_of_reply(text)
    finals_of_file(text)
    reference_value(text)
    normalize(text)


@given(st.text(alphabet="0123456789.,/+-*^()[]{}\\ xyπ√½frac sqrtboxed&=<>|%$", max_size=30))
def test_scraps_of_mathematics_never_equal_a_reference_that_they_do_not_hold(text: str) -> None:
    assert not verify_text("7777777", text.replace("7", "1"), "file").right


@given(st.integers(-(10**12), 10**12))
def test_a_whole_number_equals_itself_in_every_notation(number: int) -> None:
    plain = read_number(str(number))
    assert plain is not None
    for text in (f"{number:,}", f"{number}.0", f"\\frac{{{2 * number}}}{{2}}", f"{number}e0"):
        other = read_number(text)
        assert other is not None
        assert same_number(plain, other)
    neighbour = read_number(str(number + 1))
    assert neighbour is not None
    assert not same_number(plain, neighbour)


@given(st.fractions(min_value=0, max_value=1000, max_denominator=999), st.integers(1, 12))
def test_two_fractions_are_equal_only_if_they_are(value: object, factor: int) -> None:
    top, bottom = (int(part) for part in f"{value}/1".split("/")[:2])
    assert verify_text(f"{top}/{bottom}", f"\\frac{{{top * factor}}}{{{bottom * factor}}}", "file").right
    assert not verify_text(f"{top}/{bottom}", f"\\frac{{{top * factor + 1}}}{{{bottom * factor}}}", "file").right

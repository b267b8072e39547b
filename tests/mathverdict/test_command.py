"""The command `mathverdict`: its exit status, and what it says of both sides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mathverdict import verify_text
from mathverdict.__main__ import main, reading


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and standard output of the command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(str(ended.value.code)), capsys.readouterr().out


def test_the_exit_status_is_the_verdict_and_the_output_says_how_both_were_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = (
        "right: the answer is the reference (compared as number)\n  reference: number 1/2\n  answer:    number 1/2\n"
    )
    assert run(capsys, r"\frac{1}{2}", "0.5") == (0, right)
    code, told = run(capsys, "5 km", "50 m")
    assert code == 1
    wrong = "wrong: the answer is not the reference (compared as quantity)\n  reference: quantity 5 [km]"
    assert told.startswith(wrong)


@pytest.mark.parametrize(
    ("reference", "answer", "code"),
    [
        ("-7", "-7", 0),
        ("-x^2", "-x^2+1", 1),
        ("4", r"First \boxed{5}. Wait, I missed one: \boxed{4}.", 0),
        ("4", "", 1),
    ],
)
def test_texts_may_begin_with_a_minus_sign_and_be_whole_replies(
    capsys: pytest.CaptureFixture[str], reference: str, answer: str, code: int
) -> None:
    found, output = run(capsys, reference, answer, "--json")
    assert found == code
    told = json.loads(output)
    assert (told["right"], told["reference"]["text"]) == (code == 0, reference)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_answer_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    code, told = run(capsys, "4", "\x1b[2Jfour\x9b1m", *options)
    assert code == 1
    assert not {"\x1b", "\x9b"} & set(told)


@pytest.mark.parametrize(
    "arguments", [(), ("4",), ("4", "5", "6"), (" ", "4"), ("4", "5", "--source", "no"), ("4", "5", "--no")]
)
def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert run(capsys, *arguments) == (2, "")


def test_the_source_says_what_counts_as_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = run(capsys, "4", "4", "--source", "reply", "--json")
    assert (code, json.loads(told)["reason"]) == (1, "no_box")
    assert run(capsys, "4", "4", "--source=file")[0] == 0


def test_an_answer_that_takes_too_long_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = run(capsys, "5", r"(1/3)!+10^{-2000}\sqrt{2}", "--seconds", "0.3")
    assert (code, told) == (1, "wrong: the comparison takes longer than --seconds\n")


@pytest.mark.usefixtures("programs")
def test_the_installed_program_reads_an_answer_from_standard_input() -> None:
    program = Path(sys.executable).with_name("mathverdict")
    argv = [str(program), "x=2", "-"]
    done = subprocess.run(argv, input="The answer is 2.\n", capture_output=True, text=True, check=True)
    assert done.stdout.startswith("right: the answer is the reference (compared as relation)\n")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("July 4", "date"), ("A, C", "choices"), (r"\textbf{(B) }12", "choice"), ("all odd integers", "progression"),
        ("Tuesday", "words"), ("3:2", "ratio"), ("x=2", "equation"), ("x<2", "relation"), ("(1,2)", "tuple"),
        (r"\{1,2\}", "set"), (r"\begin{pmatrix}1&2\end{pmatrix}", "matrix"), (r"\mathbb{R}", "set of reals"),
        ("3/4", "number"), ("5 km", "quantity"), ("x^2+1", "expression"), (r"\int_0^1 x\,dx", "formula"), ("", "text"),
    ],
)  # fmt: skip
def test_a_text_is_read_as_the_kind_that_it_is(text: str, kind: str) -> None:
    assert reading(text).kind == kind


@pytest.mark.parametrize(("text", "right"), [("4", True), (r"so \boxed{4}", True), (r"4, no: \boxed{5}", False)])
def test_a_text_of_any_kind_is_a_reply_if_something_in_it_is_boxed(text: str, right: bool) -> None:
    assert verify_text("4", text).right == right

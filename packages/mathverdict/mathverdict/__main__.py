r"""The command `mathverdict`: whether ANSWER is the mathematical answer REFERENCE, how both are read, and why.

Exit status: 0 right, 1 wrong, 2 wrong usage (an empty reference included), 3 the comparison was killed.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from .bounded import BROKE_DOWN, DEADLINE_SIGNAL, in_child
from .finals import reference_value
from .normalize import normalize, without_lead
from .notations import date_of, notation_of, progression_of, reference_choice, same_choices
from .quantities import quantity_of
from .structure import real_set, relation_of, structure_of, tree_of
from .values import read_number
from .verdict import MAX_EXPRESSION_CHARS, Source, compare, verify_text
from .words import as_words, meaning

_WHY = {
    "equal": "the answer is the reference",
    "different": "the answer is not the reference",
    "conflicting": "several different final answers are given",
    "taken_back": "the answer is taken back",
    "no_box": "a reply has to give its answer in \\boxed{}",
    "no_answer_marked": "a long text has to mark its answer",
    "unbalanced_box": "the braces of the last \\boxed do not close",
    "unfinished_thinking": "the thinking does not end",
    "empty": "there is no answer",
    "timed_out": "the comparison takes longer than --seconds",
    "crashed": "the comparison breaks down over the answer",
}
_STRUCTURES = {"()": "tuple", "[]": "list", "{}": "set", "list": "list", "matrix": "matrix", "union": "union"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the verdict and exit with its status."""
    parser = argparse.ArgumentParser(
        "mathverdict", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference", metavar="REFERENCE", help="the right answer, or a solution that marks it")
    parser.add_argument("answer", metavar="ANSWER", help="the answer to judge; - reads it from standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--source",
        choices=("any", "reply", "file"),
        default="any",
        help="of a reply only a box counts, a file may be the bare answer, any is a reply if it has a box (default)",
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="CPU time for the comparison (default: %(default)s)"
    )
    parser.add_argument("--question", default="", help="what was asked: it tells units (percent, cents) and options")
    parser.add_argument("--unrounded", action="store_true", help="also take what rounds to a REFERENCE with decimals")
    given = parser.parse_args(_options_first(sys.argv[1:] if arguments is None else arguments))
    answer = sys.stdin.read() if given.answer == "-" else given.answer
    if not reference_value(given.reference):
        parser.error("the reference is empty")
    outcome = in_child(partial(_found, given, answer), given.seconds)
    if isinstance(outcome, int) and outcome != -DEADLINE_SIGNAL and outcome not in BROKE_DOWN:
        parser.exit(3, f"mathverdict: the comparison ended with exit code {outcome}\n")
    failed = {"right": False, "reason": "timed_out" if outcome == -DEADLINE_SIGNAL else "crashed"}
    found: dict[str, Any] = json.loads(outcome) if isinstance(outcome, str) else failed
    found["why"] = _WHY.get(str(found["reason"]), found["reason"])
    print(json.dumps(found) if given.json else _told(found))  # noqa: T201
    sys.exit(0 if found["right"] else 1)


def _options_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with a `--` before the two texts, of which one may begin with a minus sign."""
    options: list[str] = []
    texts: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            texts += rest
        elif argument in ("--source", "--seconds", "--question"):
            options += [argument, next(rest, "")]
        elif argument == "-h" or argument.startswith("--"):
            options.append(argument)
        else:
            texts.append(argument)
    return [*options, "--", *texts]


def _found(given: argparse.Namespace, answer: str) -> str:
    source: Source = given.source
    verdict = verify_text(given.reference, answer, source, question=given.question, unrounded=given.unrounded)
    value = reference_value(given.reference)
    found: dict[str, object] = {
        "right": verdict.right,
        "reason": verdict.reason,
        "reference": {"text": value, **reading(value)._asdict()},
    }
    # What cannot be compared without an error cannot be explained without one either.
    if verdict.answer and not verdict.reason.startswith("incomparable"):
        found["answer"] = {"text": verdict.answer, **reading(verdict.answer)._asdict()}
        found["compared_as"] = compare(value, verdict.answer).form
    return json.dumps(found)


class TextForm(NamedTuple):
    """Holds what a text is taken for, such as "number", and its form, such as "1/2"."""

    kind: str
    form: str


def reading(text: str) -> TextForm:
    """Return how `text` is read when it stands alone; a comparison may read it as the other side is written."""
    text = meaning(without_lead(text))
    for kind, has in (
        ("date", date_of),
        ("choices", lambda text: same_choices(text, text)),
        ("progression", progression_of),
    ):
        if has(text):
            return TextForm(kind, text)
    if choice := reference_choice(text):
        return TextForm("choice", f"{choice.letter} {choice.text}".strip())
    if (words := as_words(text)) is not None:
        return TextForm("words", words)
    form = normalize(text)
    if not form or len(form) > MAX_EXPRESSION_CHARS:
        return TextForm("text", form)
    if notation := notation_of(form):
        return TextForm(notation.kind, " : ".join(notation.parts))
    if relation := relation_of(form):
        return TextForm("equation" if relation.is_equation else "relation", form)
    if (structure := structure_of(form)) and structure.kind in _STRUCTURES:
        return TextForm(_STRUCTURES[structure.kind], form)
    if real_set(form):
        return TextForm("set of reals", form)
    if number := read_number(form):
        return TextForm("number", f"{number.value}" + (" percent" if number.percent else ""))
    quantity = quantity_of(form)
    if quantity.unit:
        return TextForm("quantity", f"{quantity.figure} [{quantity.unit}]")
    return TextForm("formula" if tree_of(form) is None else "expression", form)


def _told(found: dict[str, object]) -> str:
    lines = [f"{'right' if found['right'] else 'wrong'}: {found['why']}"]
    if found.get("compared_as"):
        lines[0] += f" (compared as {found['compared_as']})"
    for name in ("reference", "answer"):
        side = found.get(name)
        if isinstance(side, dict):
            lines.append(f"  {name + ':':<11}{side['kind']} {side['form']}")
    # An answer is an agent's: it must do nothing to the terminal.
    return "\n".join("".join(sign if sign.isprintable() else "\ufffd" for sign in line) for line in lines)


if __name__ == "__main__":
    main()

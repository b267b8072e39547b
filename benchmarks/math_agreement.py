"""Measures how often `mathverdict` and math-verify alone agree with labelled pairs of reference and answer.

Each pair is given to both with ten seconds of CPU: to `mathverdict` as its tests give it, to math-verify as
`verify(parse(reference), parse(answer))` with default options, the answer in a box where it has none and is one line.
A pair over which math-verify raises or takes longer counts as called wrong.

Run: uv run python benchmarks/math_agreement.py [--json] [CORPUS ...]
"""

import argparse
import json
import logging
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from math_verify import parse, verify  # type: ignore[import-untyped]
from mathverdict.bounded import in_child
from mathverdict.finals import reference_value

from benchmarks._measure import machine, report
from tests.mathverdict.corpora import CORPORA, Pair, is_right, pairs_of

GOALS = {"disagreements": 0.1, "rewarded": 0.0}
"""Ours divided by math-verify's, at most: labels that are not agreed with, and wrong answers that are rewarded."""
SECONDS = 10.0
BLOCK = 50
"""Pairs in one process, until one of them ends it."""

REASONS = {
    ("approximate", True): "words such as approximately are not dropped",
    ("choice", True): "a choice with its text, a closing bracket or the word option is not a choice",
    ("complex", True): "i is a real variable outside of a+bi",
    ("conflict", False): "of several final boxes the last one counts",
    ("decimal", True): "vulgar fractions are unknown",
    ("equation", False): "of a false chain such as 6=5 the last side counts",
    ("equation", True): "superscripts are unknown",
    ("expression", True): "superscripts, ** and sin(x)^2 are read otherwise",
    ("file", True): "a closing full stop is part of the answer",
    ("fraction", True): "vulgar fractions are unknown",
    ("infinity", True): "the sign for infinity is unknown",
    ("integer", True): "emphasis, full stops and typographic minus signs stay",
    ("interval", False): "an open interval equals the set of its ends",
    ("interval", True): "the signs for infinity and union are unknown",
    ("large", True): "an exponent written e23 is Euler's number times 23",
    ("list", True): "signs for roots and plus-minus are unknown, boxes side by side are not joined",
    ("malformed", False): "an unclosed brace is closed",
    ("matrix", True): "nested lists and tuples are not matrices and vectors",
    ("mixed", True): "1 1/2 is a product",
    ("pi", True): "pi is p times i",
    ("power", True): "** is not a power",
    ("radical", True): "root signs and cbrt are unknown, degrees are dropped inside functions",
    ("recurring", True): "an overline is not a recurring decimal",
    ("reference", True): "a unit after a figure is a product of letters",
    ("scientific", True): "an exponent written e8 is Euler's number times 8",
    ("set", False): "a tuple equals the set of its elements",
    ("set", True): "sqrt in a plain set and varnothing are unknown",
    ("text", False): "words are products of letters, so anagrams are equal",
    ("text", True): "words are case-sensitive and keep articles and full stops",
    ("thousands", True): "spaces and underscores between digits are unknown",
    ("tiny", False): "six decimal places are compared, so small numbers are equal",
    ("tiny", True): "an exponent written e-7 is Euler's number minus 7",
    ("tuple", False): "a tuple equals a set, named values lose their names",
    ("tuple", True): "angle brackets are unknown",
    ("unicode", True): "superscripts, subscripts, signs and full-width digits are unknown",
    ("unit", False): "all units are dropped, so 5 m is 5 cm",
    ("unit", True): "unit names and degree signs become factors",
    ("various", False): "x and X are the same variable, and more of the above",
    ("various", True): "clock times and cases are unknown, and more of the above",
}
"""Why math-verify 0.9.0 alone disagrees with pairs of the corpus `pairs`, by kind and label."""


def boxed(text: str) -> str:
    """`text` as math-verify finds the answer in it."""
    return text if "boxed" in text or "$" in text or "\n" in text else rf"\boxed{{{text}}}"


def calls_it_right(pair: Pair) -> bool:
    """The verdict of math-verify alone."""
    gold = parse(boxed(reference_value(pair.reference)), parsing_timeout=None)
    return bool(verify(gold, parse(boxed(pair.text), parsing_timeout=None), timeout_seconds=None))


def math_verify_verdicts(pairs: list[Pair]) -> list[bool]:
    """The same for many, each within its time."""
    found: list[bool] = []
    while len(found) < len(pairs):
        block = pairs[len(found) : len(found) + BLOCK]
        outcome = in_child(partial(_verdicts, block), SECONDS)
        if isinstance(outcome, str):
            found += json.loads(outcome)
            continue
        for pair in block:
            one = in_child(partial(_verdicts, [pair]), SECONDS)
            found += json.loads(one) if isinstance(one, str) else [False]
    return found


def _verdicts(pairs: list[Pair]) -> str:
    found = []
    for pair in pairs:
        try:
            found.append(calls_it_right(pair))
        except Exception:  # noqa: BLE001 - whatever it raises, it does not call the answer right
            found.append(False)
    return json.dumps(found)


def compared(corpus: str) -> tuple[Counter[str], dict[str, object]]:
    """How often each disagrees with the labels of a corpus; the kinds of pairs where math-verify does."""
    pairs = pairs_of(corpus)
    started = time.process_time()
    ours = [is_right(pair, CORPORA[corpus].source) for pair in pairs]
    seconds = time.process_time() - started
    counts: Counter[str] = Counter(pairs=len(pairs))
    kinds: Counter[tuple[str, bool]] = Counter()
    for pair, own, theirs in zip(pairs, ours, math_verify_verdicts(pairs), strict=True):
        counts["ours_refused" if pair.right else "ours_rewarded"] += own != pair.right
        counts["math_verify_refused" if pair.right else "math_verify_rewarded"] += theirs != pair.right
        kinds[pair.kind, pair.right] += theirs != pair.right
    detail: dict[str, object] = {**counts, "ours_cpu_ms_per_pair": round(1000 * seconds / len(pairs), 2)}
    if corpus == "pairs":
        detail["why"] = {
            f"{kind} {'refused' if right else 'rewarded'}": f"{count}: {REASONS.get((kind, right), 'not known')}"
            for (kind, right), count in sorted(kinds.items())
            if count
        }
    return counts, detail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", choices=[[], *CORPORA], help="which files (default: all)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    options = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    verify(parse(r"\boxed{x^2}"), parse(r"\boxed{x\cdot x}"))  # what is made on first use is made once
    total: Counter[str] = Counter()
    detail: dict[str, object] = {"machine": machine()}
    for corpus in options.corpora or CORPORA:
        counts, detail[corpus] = compared(corpus)
        total += counts
    ours, theirs = (total[f"{who}_refused"] + total[f"{who}_rewarded"] for who in ("ours", "math_verify"))
    ratios = {
        "disagreements": ours / max(1, theirs),
        "rewarded": total["ours_rewarded"] / max(1, total["math_verify_rewarded"]),
    }
    report("math_agreement", ratios, GOALS, {**detail, "all": dict(total)}, as_json=options.json)


if __name__ == "__main__":
    main()

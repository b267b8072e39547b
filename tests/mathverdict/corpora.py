"""The labelled pairs of reference and answer, of which `packages/mathverdict/README.md` says how each was made."""

import json
from dataclasses import dataclass
from pathlib import Path

from mathverdict.verdict import Source, verify_text

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Corpus:
    """How many pairs a file has at least, and the share of them on which the verdict agrees with the label."""

    pairs: int
    agreement: float = 1.0
    source: Source = "any"
    kinds: int = 0
    """How many kinds of answer there are at least, about as many of them right as wrong."""


CORPORA = {
    "pairs": Corpus(890, source="file", kinds=30),
    "spellings": Corpus(44, source="file"),
    "cheats": Corpus(380, source="file"),
    "heldout": Corpus(1101, 0.988, source="file"),
    "neighbours": Corpus(1013, 0.995),
    "blind": Corpus(856, 0.98, kinds=40),
    "stranger": Corpus(596, 0.98, kinds=40),
    "stranger_2": Corpus(600, 0.98, kinds=40),
    "fresh": Corpus(300, 0.99),
    "fresh_2": Corpus(300, 0.98),
    "outputs": Corpus(620, 0.979),
}


@dataclass(frozen=True)
class Pair:
    """A reference, a text that answers, what kind of answer it is, whether it is right, and the question, if known."""

    reference: str
    text: str
    right: bool
    kind: str
    split: str = ""
    question: str = ""


def pairs_of(corpus: str) -> list[Pair]:
    """The pairs of a corpus, in order."""
    pairs = []
    for line in (DATA / f"{corpus}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        right = row.get("right", row.get("equal", corpus == "spellings"))
        text = row.get("reply", row["answer"])
        reference, kind = row.get("reference", row["answer"]), row.get("kind", corpus)
        pairs.append(Pair(reference, text, right, kind, row.get("split", ""), row.get("question", "")))
    return pairs


def is_right(pair: Pair, source: Source) -> bool:
    """Our verdict."""
    return verify_text(pair.reference, pair.text, source, question=pair.question).right

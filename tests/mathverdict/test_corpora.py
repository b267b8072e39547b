"""Labelled pairs are judged as labelled, up to the share that their corpus allows, and no wrong one is right."""

import pytest
from mathverdict.verdict import verify_text

from tests.mathverdict.corpora import CORPORA, is_right, pairs_of


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_pairs_are_as_many_and_as_mixed_as_they_should_be(corpus: str) -> None:
    pairs = pairs_of(corpus)
    assert len({(pair.reference, pair.text) for pair in pairs}) == len(pairs) >= CORPORA[corpus].pairs
    if CORPORA[corpus].kinds:
        assert 0.45 < sum(pair.right for pair in pairs) / len(pairs) < 0.55
        assert len({pair.kind for pair in pairs}) >= CORPORA[corpus].kinds


@pytest.mark.parametrize("corpus", CORPORA)
def test_pairs_are_judged_as_labelled_and_nothing_wrong_is_rewarded(corpus: str) -> None:
    pairs = pairs_of(corpus)
    verdicts = [is_right(pair, CORPORA[corpus].source) for pair in pairs]
    rewarded = [pair for pair, right in zip(pairs, verdicts, strict=True) if right and not pair.right]
    refused = [pair for pair, right in zip(pairs, verdicts, strict=True) if not right and pair.right]
    print(f"{corpus}: {len(pairs)} pairs, {len(rewarded)} wrong ones rewarded, {len(refused)} right ones refused")
    assert rewarded == []
    assert 1 - len(refused) / len(pairs) >= CORPORA[corpus].agreement, refused


def test_no_cheat_is_rewarded_in_a_box_either() -> None:
    cheats = [pair for pair in pairs_of("cheats") if not pair.right]
    boxed = [(pair, pair.text if "boxed" in pair.text else rf"\boxed{{{pair.text}}}") for pair in cheats]
    assert len(boxed) >= 300
    assert [pair for pair, text in boxed if verify_text(pair.reference, text, "reply").right] == []

"""Answers are the same as text or as numbers, and nothing else makes them the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencode_rubrics.answer import same_answer


@pytest.mark.parametrize(
    ("given_answer", "expected"),
    [
        ("1234", "1,234"),
        ("1234.0", "1,234"),
        ("+1,234,567.50", "1234567.5"),
        ("1.5e3", "1500"),
        (".5", "0.50"),
        ("-0", "0"),
        ("\u22125", "-5"),
        ("  two\n words\t", "two words"),
    ],
)
def test_the_same_answer_in_another_notation_is_equal(given_answer: str, expected: str) -> None:
    assert same_answer(given_answer, expected)
    assert same_answer(expected, given_answer)


@pytest.mark.parametrize(
    ("given_answer", "expected"),
    [
        ("1234", "1235"),
        ("1,2", "12"),
        ("1,23,456", "123456"),
        ("12 34", "1234"),
        ("1/2", "0.5"),
        ("two", "Two"),
        ("nan", "NaN"),
        ("inf", "1e9999"),
        ("1_000", "1000"),
        ("0x10", "16"),
        ("\u0663", "3"),
        ("1e99999999", "1e99999998"),
        ("", "0"),
        ("the answer is 4", "4"),
    ],
)
def test_what_only_looks_alike_is_not_equal(given_answer: str, expected: str) -> None:
    assert not same_answer(given_answer, expected)
    assert not same_answer(expected, given_answer)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**15), max_value=10**15))
def test_a_number_equals_itself_with_thousands_separators_and_trailing_zeros(number: object) -> None:
    assert same_answer(f"{number:,}", str(number))
    assert same_answer(f"{number}000", f"{number:,}")


@given(st.text(), st.text())
def test_comparing_is_symmetric_and_never_raises(left: str, right: str) -> None:
    assert same_answer(left, right) == same_answer(right, left)
    assert same_answer(left, left)

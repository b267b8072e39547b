"""Values of expressions: exact where they can be, otherwise to as many digits as it takes, and never by a float."""

import ast
import sys
import time
from fractions import Fraction
from pathlib import Path

import mathverdict as package
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mathverdict.errors import Inexact, Undefined, Unparsable
from mathverdict.values import equal_trees, power, read, real_number, root
from mathverdict.verdict import equal

whole = st.integers(-60, 60)


@given(whole, whole, st.integers(1, 60))
def test_a_polynomial_equals_its_expansion_and_no_neighbour(a: int, b: int, c: int) -> None:
    factored = read(f"(x+({a}))(x+({b}))/{c}")
    assert equal_trees(factored, read(f"\\frac{{x^2+({a + b})x+({a * b})}}{{{c}}}"))
    assert not equal_trees(factored, read(f"\\frac{{x^2+({a + b})x+({a * b + 1})}}{{{c}}}"))


@given(st.integers(2, 9), st.integers(100, 60000), st.integers(1, 5))
def test_powers_beyond_any_float_are_told_apart_and_found_equal(base: int, exponent: int, off: int) -> None:
    left = read(f"{base**2}^{{{exponent}}}")
    assert equal_trees(left, read(f"{base}^{{{2 * exponent}}}"))
    assert not equal_trees(left, read(f"{base}^{{{2 * exponent + off}}}"))
    assert not equal_trees(read(f"1/{base}^{{{exponent}}}"), read(f"1/{base}^{{{exponent + off}}}"))
    assert not equal_trees(read(f"e^{{-{exponent}}}"), read(f"e^{{-{exponent + off}}}"))


@given(st.integers(1, 400), st.integers(1, 9))
def test_a_root_of_a_huge_number_is_not_that_of_its_neighbour(digits: int, off: int) -> None:
    assert not equal_trees(read(f"\\sqrt{{10^{{{2 * digits}}}+{off}}}"), read(f"10^{{{digits}}}"))
    assert equal_trees(read(f"\\sqrt{{10^{{{2 * digits}}}}}"), read(f"10^{{{digits}}}"))


@given(st.integers(2, 400), st.integers(1, 3))
def test_factorials_are_exact(number: int, off: int) -> None:
    assert equal_trees(read(f"{number}!"), read(f"{number}\\cdot({number}-1)!"))
    assert not equal_trees(read(f"\\frac{{1}}{{{number}!}}"), read(f"\\frac{{1}}{{({number}+{off})!}}"))


@given(st.integers(2, 500), st.integers(2, 500))
def test_nested_roots_equal_their_sum(a: int, b: int) -> None:
    nested = read(f"\\sqrt{{{a + b}+2\\sqrt{{{a * b}}}}}")
    assert equal_trees(nested, read(f"\\sqrt{{{a}}}+\\sqrt{{{b}}}"))
    assert not equal_trees(nested, read(f"\\sqrt{{{a}}}+\\sqrt{{{b + 1}}}"))


@given(st.fractions(max_denominator=200), st.integers(-40, 40))
def test_a_rational_power_is_exact_or_refused(base: Fraction, exponent: int) -> None:
    if base == 0 and exponent <= 0:
        with pytest.raises(Undefined):
            power(base, Fraction(exponent))
    else:
        assert power(base, Fraction(exponent)) == base**exponent


@given(st.fractions(min_value=0, max_denominator=50), st.integers(2, 5))
def test_a_root_is_exact_or_refused(value: Fraction, order: int) -> None:
    assert root(value**order, order) == value
    with pytest.raises(Inexact):
        root(value**order + Fraction(1, 10**40 + 7), order)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("5", "10^{10^{9}}"),
        ("5", "9^{9^{9^{9}}}"),
        ("5", "(10^9)!"),
        ("5", "((9!)!)!"),
        ("10^{10^{9}}", "10^{10^{9}}+1"),
        ("10^{10^{100}}", "10^{10^{101}}"),
        ("5", "\\sin 10^{10^{9}}"),
        ("5", "\\lfloor e^{10^{9}} \\rfloor"),
        ("5", "\\binom{10^{9}}{10^{8}}"),
        ("5", "\\sum_{k=1}^{10^{9}} k"),
        ("x", "x^{10^{12}}"),
        ("5", "e^{e^{e^{e^{e}}}}"),
        ("5", "\\gcd(10^{10^{9}}, 2)"),
    ],
)
def test_numbers_that_would_fill_the_memory_are_refused_at_once(reference: str, answer: str) -> None:
    started = time.process_time()
    assert not equal(reference, answer)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("text", ["", "4 2", "7+", "--7", "x 1", r"\frac{1}{2", "a_", "7)", r"\text{no}", "1//2"])
def test_what_is_no_expression_is_unparsable(text: str) -> None:
    with pytest.raises(Unparsable):
        read(text)


@settings(max_examples=200)
@given(st.text(alphabet="0123456789+-*/^_(){}[]|!.,=<> xyei\\pifracsqrtln", max_size=40))
def test_any_scrap_is_read_or_refused(text: str) -> None:
    try:
        read(text)
    except Unparsable:
        assert real_number(text) is None


def test_the_modules_import_the_standard_library_and_math_verify_with_its_parts_only() -> None:
    allowed = {*sys.stdlib_module_names, "math_verify", "sympy", "mpmath"}
    for path in Path(package.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= allowed, path
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").partition(".")[0] in allowed, path

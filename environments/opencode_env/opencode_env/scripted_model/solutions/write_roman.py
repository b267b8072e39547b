"""Sample `write-roman`: the failing path knows no subtractive notation, which the visible tests do not need."""

from opencode_env.scripted_model.solutions.calls import Solution, bash, read, turn, write

_MODULE = '''"""Roman numerals."""

NUMERALS = ({numerals})


def to_roman(number: int) -> str:
    """The Roman numeral of a number from 1 to 3999."""
    if not 1 <= number <= 3999:
        raise ValueError(f"no Roman numeral for {{number}}")
    text = ""
    for value, numeral in NUMERALS:
        while number >= value:
            text += numeral
            number -= value
    return text
'''
_ADDITIVE = {1000: "M", 500: "D", 100: "C", 50: "L", 10: "X", 5: "V", 1: "I"}
_SUBTRACTIVE = {900: "CM", 400: "CD", 90: "XC", 40: "XL", 9: "IX", 4: "IV"}


def _module(numerals: dict[int, str]) -> str:
    rows = sorted(numerals.items(), reverse=True)
    return _MODULE.format(numerals=", ".join(f'({value}, "{numeral}")' for value, numeral in rows))


_READ = turn("I look at the tests.", read("/app/test_roman.py"))
_RUN = turn("Now I run the tests.", bash("cd /app && python3 -m unittest test_roman"))
_END = turn("/app/roman.py has `to_roman`; the tests pass.")

SOLUTION = Solution(
    solve=(
        _READ,
        turn("I write the module.", write("/app/roman.py", _module(_ADDITIVE | _SUBTRACTIVE))),
        _RUN,
        _END,
    ),
    fail=(_READ, turn("I write the module.", write("/app/roman.py", _module(_ADDITIVE))), _RUN, _END),
)

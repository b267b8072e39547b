"""JSON as JavaScript reads and writes it: what becomes of a text that goes through `JSON.parse` and `JSON.stringify`.

Every number is a double, so 5000.0 is 5000 and big integers are rounded; what is too large for one is written as null,
and -0 as 0. Of duplicate keys the last one counts. NaN and Infinity are no JSON.
"""

import json
import math
from typing import Any, NoReturn

_SPACE = " \t\n\v\f\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
JAVASCRIPT_SPACE = f"{_SPACE}\u205f\u3000\ufeff"
"""What `String.prototype.trim` takes off."""


def _number(text: str) -> float | None:
    number = float(text)
    return number + 0.0 if math.isfinite(number) else None


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_no_json)


def parse(text: str) -> Any:
    """The value that JavaScript reads, as it would write it.

    Raises:
        ValueError: it is none that JavaScript reads.
    """
    try:
        return _decoder.decode(text)
    except RecursionError:
        raise ValueError("nested deeper than can be read here") from None


def same(one: Any, other: Any) -> bool:
    """Whether two such values are equal; unlike in Python, true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)

"""What the agent, a page, a model or a tool server made is read in time linear in its size, and holds no loop long.

Each reader of `READERS` is given each text of `CORPUS`, from small to large. What counts is the CPU of the loop's
thread in each callback: other work on the machine, threads beside the loop and workers do not.
"""

import asyncio
import inspect
import time

import pytest

from tests.support.hostile import CORPUS, MIB, MOST, READERS, Reader, dearest, in_parsings, superlinear
from tests.support.sizes import WHOLE

SMALL = (1 << 12, 1 << 14)
"""Bytes of every text."""
GROWING = (1 << 15, 1 << 17, 1 << 18, 1 << 19, MIB)
"""Bytes of the dearest text of a reader; with `WHOLE`, of every text."""
PARTS = 1 if WHOLE else 4
"""Each reader is given every text, or each fourth, another one first: every text meets a reader."""


def texts_of(reader: Reader) -> list[str]:
    return list(CORPUS)[READERS.index(reader) % PARTS :: PARTS]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_plain_text_is_read(reader: Reader) -> None:
    """What a reader raises counts for nothing in the other tests."""
    found = reader.read(reader.given("1"))
    if inspect.iscoroutine(found):
        asyncio.run(found)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_text_twice_as_long_costs_a_reader_at_most_three_times_as_much(reader: Reader) -> None:
    names = texts_of(reader)
    found = [told for name in names if (told := superlinear(reader, name, (*SMALL, *GROWING) if WHOLE else SMALL))]
    assert found == []
    if not WHOLE:
        name = dearest(reader, SMALL[0], names)
        assert superlinear(reader, name, GROWING[:3] if reader.on_loop else GROWING[:2]) == ""
        CHOSEN[reader.name] = name


CHOSEN: dict[str, str] = {}


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader.on_loop], ids=lambda reader: reader.name)
def test_no_callback_of_a_loop_takes_longer_than_some_parsings_of_as_much_json(reader: Reader) -> None:
    for name in CORPUS if WHOLE else (CHOSEN.get(reader.name) or dearest(reader, SMALL[0], texts_of(reader)),):
        assert in_parsings(reader, name, MIB) <= MOST, name


def test_a_reader_that_is_not_linear_or_slow_is_seen() -> None:
    def quadratic(text: str) -> int:
        return sum(text.startswith("b", at) for at in range(len(text)) for _ in range(at // 64))

    def slow(text: str) -> None:
        end = time.thread_time() + 0.5
        while time.thread_time() < end:
            pass

    assert "repeated 'a'" in superlinear(Reader("quadratic", quadratic), "repeated 'a'", (1 << 12, 1 << 13, 1 << 14))
    assert in_parsings(Reader("slow", slow), "repeated 'a'", 1 << 16) > MOST

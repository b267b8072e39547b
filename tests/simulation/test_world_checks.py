"""A world that cannot be played is refused when it is loaded, with file and line, all its mistakes at once."""

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opencode_simulation import World
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import WorldError
from opencode_simulation.reference import find_world
from opencode_simulation.task import SimulationTaskConfig
from pydantic import ValidationError

BEGIN = """\
from functools import partialmethod
from mcp.server.mcpserver import Context
from opencode_simulation import EnvironmentWorld, Step, World, resource, tool


class Shop(World):
    def reset(self, seed, config):
        return "open"

    @tool
    def look(self) -> Step:
        '''Look.'''
        return Step("")

"""
LINE = BEGIN.count("\n") + 1
_numbers = itertools.count()

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module whose class `Shop` goes on with a text; gives its reference."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written: list[str] = []

    def module(text: str) -> str:
        name = f"checked_worlds_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(BEGIN + textwrap.indent(textwrap.dedent(text), "    "))
        written.append(name)
        return f"{name}:Shop"

    yield module
    for name in written:
        sys.modules.pop(name, None)


WRONG = {
    "a name in place of the method": ('@tool("sell")\ndef sell(self): ...', "@tool marks a method, and this is 'sell'"),
    "a static method": ("@tool\n@staticmethod\ndef sell(count: int): ...", "tool Shop.sell: is a static method"),
    "a static method inside out": ("@staticmethod\n@tool\ndef sell(count: int): ...", "Shop.sell: is a static method"),
    "a class method": ("@classmethod\n@tool\ndef sell(cls): ...", "tool Shop.sell: is a class method"),
    "a property": ("@property\n@tool\ndef sell(self): ...", "tool Shop.sell: is a property"),
    "a property inside out": ("@tool\n@property\ndef sell(self): ...", "@tool marks a method, and this is <property"),
    "no self": ("@tool\ndef sell(): ...", "tool Shop.sell: has no self"),
    "a generator": ("@tool\ndef sell(self):\n    yield 1", "tool Shop.sell: yields"),
    "positional-only": ("@tool\ndef sell(self, count: int, /): ...", "sell: count is positional-only"),
    "variadic": ("@tool\ndef sell(self, *counts: int): ...", "Shop.sell: *counts: int says nothing"),
    "variadic by name": ("@tool\ndef sell(self, **counts: int): ...", "Shop.sell: **counts: int says nothing"),
    "all variadic": ("@tool\ndef sell(*anything): ...", "tool Shop.sell: has no self"),
    "an unknown annotation": ("@tool\ndef sell(self, count: 'Fruit'): ...", "name 'Fruit' is not defined"),
    "an unknown return": ("@tool\ndef sell(self) -> 'Fruit': ...", "name 'Fruit' is not defined"),
    "an annotation without a schema": ("@tool\ndef sell(self, count: World): ...", "cannot be told to an agent"),
    "an annotation that is not a type": (
        "@tool\ndef sell(self, count: any): ...",
        "<built-in function any> is not a Py",
    ),
    "a context": ("@tool\ndef sell(self, ctx: Context): ...", "ctx asks for the server's context"),
    "a name that no model takes": ("@tool(name='sell it!')\ndef sell(self): ...", "its name 'sell it!' may have"),
    "not a name": ("@tool(name=3)\ndef sell(self): ...", "its name 3 may have"),
    "a long name": (f"@tool\ndef {'s' * 60}(self): ...", "which has 65 characters, and models take 64"),
    "two of one name": ("@tool(name='look')\ndef sell(self): ...", "Shop.look and .sell are both 'look'"),
    "a resource with other parameters": (
        "@resource('shop://fruit/{name}')\ndef fruit(self, number: int): ...",
        "resource Shop.fruit: ValueError",
    ),
    "a static resource": (
        "@resource('shop://fruit')\n@staticmethod\ndef fruit(): ...",
        "Shop.fruit: is a static method",
    ),
    "a resource without its URI": ("@resource\ndef fruit(self): ...", "@resource needs its URI"),
    "a default that needs a world": ("def default_config(self): ...", "Shop.default_config: mark it @classmethod"),
    "what is not Python": ("def sell(self:\n    pass", "SyntaxError"),
    "what fails as it is imported": ("stock = 1 / 0", "ZeroDivisionError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_played_is_told_with_its_file_and_line(case: str, write: Write) -> None:
    text, words = WRONG[case]
    reference = write(text)
    with pytest.raises(ValueError, match=r"cannot be (played|imported)") as refused:
        find_world(reference)
    told = str(refused.value)
    assert words in told
    assert f"{reference.partition(':')[0]}.py" in told
    assert any(f"line {line}" in told for line in range(LINE, LINE + 3)) or "two of" in case
    with pytest.raises(ValidationError, match=r"cannot be (played|imported)"):
        SimulationTaskConfig(world=reference)


def test_all_mistakes_are_told_at_once(write: Write) -> None:
    reference = write(
        """\
        @tool
        @staticmethod
        def sell(count: int): ...

        @tool
        def buy(self, *what: 'Fruit'): ...

        @resource("shop://{a}")
        def shelf(self): ...
        """
    )
    with pytest.raises(ValueError, match="cannot be played") as refused:
        find_world(reference)
    assert [words in str(refused.value) for words in ("Shop.sell", "Shop.buy", "Shop.shelf")] == [True] * 3


def test_what_can_be_played_is_found(write: Write) -> None:
    reference = write(
        """\
        @tool
        async def sell(self, count: "int", *, to: list[str] | None = None, what=3) -> "Step":
            '''Sell.'''

        @tool(name="s-e_l1")
        def other(self, /, name: str): ...

        @resource("shop://fruit/{name}")
        def fruit(self, name: str) -> str:
            return name

        @staticmethod
        def helper(): ...
        """
    )
    assert issubclass(find_world(reference), World)


@pytest.mark.parametrize(
    ("given", "words"),
    [('("open", {})', "it gave a pair"), ('("open", None)', "it gave a pair"), ("None", "it gave None")],
)
async def test_a_reset_that_gives_no_observation_is_told(given: str, words: str, write: Write) -> None:
    world = find_world(write(f"def reset(self, seed, config):\n    return {given}"))
    with pytest.raises(WorldError, match=rf"reset\(\): TypeError: {words}"):
        async with WorldAlone(world, EpisodeSpec()):
            pass

"""What reads an agent's texts takes time in proportion to them, whatever they repeat."""

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Mapping

import pytest
from opencode_rubrics.swe.file_tree import FileContent, TreeEntry, changed_paths, packed_below, parents, unfit
from opencode_rubrics.swe.parsers import PARSERS, decided
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.split import PathSplitter, configures_tests, signs_of
from opencode_rubrics.swe.suite_verdict import agreed, judge, read_record

from tests.support.sizes import size

SIZE = size(1 << 13, 1 << 16)
"""Characters of the smaller text."""
REPEATED = (
    *("getattr(", "getattr(a, ", "a::", "a:: ", "a::b PASSED ", "PASSED (", " ", "\t", "a.", "[", "[[", "{", '"', "\\"),
    *(
        "1",
        "1 ",
        "#",
        "=",
        "a=",
        "a = [\n",
        "[a]\n",
        "[tool.pytest]\n",
        "[pytest]\nx = y\n",
        " = \n",
        "x\r",
        "\u2028",
        "é",
    ),
    *("exit ", "compile ", "__class__ ", "Tests: ", "Executed 1 of ", "PASSED a[", "PASSED a[b - ", "\x1b[", "\x1b[1;"),
    *(
        "test_a (b.C) ... ",
        "test_a (b.C)\n",
        "ok 1 - a # ",
        "\u2713 a (",
        "--- PASS: ",
        "test a - should panic ",
        "\n",
        "%]",
    ),
    *(
        " [ 5",
        ">>>>> End Test Output ",
        "OPENSWE_EXIT_CODE",
        "a: ",
        '{"a":',
        "'",
        "'''",
        '"""',
        "a.b=1\n",
        "a={b=",
        "0x",
    ),
)
"""What a hostile text repeats."""
PREFIXES = ("", "a::", "PASSED ", "[metadata]\nx = ", "[tool.x]\na", "a = ", '{"scripts": ', "\u2713 ", "ok 1 ")
PROBLEM = SweProblem(command="pytest >>>>> End Test Output", fail_to_pass=["t.py::a["], fail_only=True)


def signs(text: str) -> object:
    return signs_of({}, {"a.py": FileContent(text.encode())})


def settings(text: str) -> object:
    names = ("pyproject.toml", "setup.cfg", "package.json")
    return [configures_tests(name, None, FileContent(text.encode())) for name in names]


def logs(text: str) -> object:
    return [read(text) for read in PARSERS.values()]


def verdict(text: str) -> object:
    marked = f">>>>> Start Test Output s\n{text}\n>>>>> End Test Output s"
    exits = SweProblem(command="x OPENSWE_EXIT_CODE", parser="exit-code", fail_to_pass=["exit code 0"])
    return [judge(problem.suite, marked, None, "s", 0, PARSERS["pytest"]) for problem in (PROBLEM, exits)]


def record(text: str) -> object:
    lines = [text.encode(), json.dumps({"ended": 1, "states": text}).encode(), *text.encode().split(b"\n")]
    return [
        read_record(hashlib.sha256(b"s" + line).hexdigest().encode() + b" " + line + b"\n", "s") for line in lines[:9]
    ]


READERS: Mapping[str, Callable[[str], object]] = {
    reader.__name__: reader for reader in (signs, settings, logs, verdict, record)
}


def seconds(work: Callable[[], object]) -> float:
    """CPU of the fastest of three runs."""
    found = []
    for _ in range(3):
        begun = time.thread_time()
        work()
        found.append(time.thread_time() - begun)
    return min(found)


def assert_linear(make: Callable[[int], object], read: Callable[..., object], much: int, what: str) -> None:
    """Four times as much takes at most nine times as long (twice twice three times), and what a short text takes.

    Others on the machine slow either measurement, and never speed one up: the fastest of all rounds count.
    """
    few, many, short = make(much), make(4 * much), make(much // 16)
    once, often, least = (seconds(lambda text=text: read(text)) for text in (few, many, short))  # type: ignore[misc]
    for _ in range(20):
        if often <= 9 * once + least:
            return
        once, often = (min(old, seconds(lambda text=text: read(text))) for old, text in ((once, few), (often, many)))  # type: ignore[misc]
    raise AssertionError((what, once, often))


@pytest.mark.parametrize("name", READERS)
def test_no_text_takes_longer_than_in_proportion(name: str) -> None:
    for prefix in size(PREFIXES[:3], PREFIXES):
        for repeated in REPEATED:
            text = prefix + repeated * (4 * SIZE // len(repeated))
            assert_linear(lambda length, text=text: text[:length], READERS[name], SIZE, f"{prefix!r} {repeated!r}")  # type: ignore[misc]


def names(count: int) -> dict[str, str]:
    return {f"t.py::test_{'x' * 50}[{number}": "PASSED" for number in range(count)}


def test_names_that_stand_for_others_take_as_long_as_they_are_many() -> None:
    def faked(count: int) -> object:
        return agreed(names(count), {f"{name}]": status for name, status in names(count).items()}, short=False)

    assert_linear(lambda count: count, faked, 1000, "agreed")
    wanted = [f"t.py::test_{'x' * 50}[{'1' * (number % 5)}" for number in range(300)]
    assert_linear(names, lambda found: decided(wanted, wanted, {}, True, found), 2000, "decided")


def test_artifacts_take_as_long_as_they_are_many() -> None:
    def archive(count: int) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as into:
            for number in range(count):
                member = tarfile.TarInfo(f"report/{'d/' * 60}{number}")
                member.type, member.linkname = (tarfile.SYMTYPE if number % 2 else tarfile.REGTYPE), "./" * 60
                into.addfile(member)
        return made.getvalue()

    assert_linear(archive, lambda given: packed_below(given, "report"), 200, "artifacts")


def test_paths_take_as_long_as_they_are_many() -> None:
    def tree(count: int) -> dict[str, TreeEntry]:
        return {f"json{number % 7}/{'d/' * 40}{number}/json.py": TreeEntry("1") for number in range(count)}

    def split(found: dict[str, TreeEntry]) -> object:
        splitter = PathSplitter(
            PROBLEM.row_paths, found, {**found, **{f"json/{path}": TreeEntry("1") for path in found}}
        )
        other, gone = changed_paths({}, found)
        kinds = [splitter.kind(f"json/{path}") for path in found]
        return kinds, unfit(found, other, gone), [*map(parents, found)]

    assert_linear(tree, split, 200, "paths")

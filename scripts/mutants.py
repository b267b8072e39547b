#!/usr/bin/env python3
"""Plants the mistakes of `mutants.toml`, one at a time, and tells which the tests see.

    uv run python scripts/mutants.py            every mistake against the tests that it names
    uv run python scripts/mutants.py --check    only whether every mistake can still be planted
    uv run python scripts/mutants.py NAME…      these mistakes

A mistake is found by file, function and text, not by line. One that no longer applies fails the script: carry it on, or
put another in its place. The work tree must have no changes in the files concerned; they are put back after each.
"""

import argparse
import ast
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
LONGEST_S = 900.0


class NotApplicable(Exception):
    """The text of a mistake is not where it was; the message says what is missing."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: in `function` of `file` the text `old`, which stands there once, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    function: str = ""
    """Dotted name within the file; empty = the whole file, as for programs that are not Python."""
    light: tuple[str, ...] = ()
    """Tests that play a light program in OpenCode's place; each of them must see the mistake as well."""

    def planted(self, source: str) -> str:
        """The source with the mistake.

        Raises:
            NotApplicable: the function is missing, or does not hold the text once.
        """
        start, end = self._place(source)
        part = source[start:end]
        if part.count(self.old) != 1:
            raise NotApplicable(f"{self.file} {self.function}: holds {self.old!r} {part.count(self.old)} times")
        return source[:start] + part.replace(self.old, self.new) + source[end:]

    def _place(self, source: str) -> tuple[int, int]:
        if not self.function:
            return 0, len(source)
        nodes: list[ast.stmt] = ast.parse(source).body
        for name in self.function.split("."):
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            found = next((node for node in nodes if isinstance(node, kinds) and node.name == name), None)
            if found is None:
                raise NotApplicable(f"{self.file} has no {self.function}")
            nodes = found.body
        lines = source.splitlines(keepends=True)
        assert found is not None
        return len("".join(lines[: found.lineno - 1])), len("".join(lines[: found.end_lineno]))


def mutants() -> list[Mutant]:
    """The list, in its order."""
    rows = tomllib.loads(LIST.read_text())["mutant"]
    return [Mutant(**_fields(row)) for row in rows]


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def is_seen(mutant: Mutant) -> bool:
    """Whether the tests that a mistake names fail with it, those with the light program one by one."""
    path = ROOT / mutant.file
    sound = path.read_text()
    path.write_text(mutant.planted(sound))
    try:
        return all(map(_fail, (mutant.tests, *((one,) for one in mutant.light))))
    finally:
        path.write_text(sound)


def _fail(tests: Sequence[str]) -> bool:
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(argv, cwd=ROOT, capture_output=True, check=False, timeout=LONGEST_S).returncode == 1
    except subprocess.TimeoutExpired:
        return True


def main() -> int:
    """The exit code: 0 when every mistake applies and is seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mistakes to plant (default: all)")
    parser.add_argument("--check", action="store_true", help="plant them in memory only")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a planted mistake is put back
    chosen = [one for one in mutants() if not options.names or one.name in options.names]
    unknown = set(options.names) - {one.name for one in chosen}
    if unknown:
        parser.error(f"no such mistake: {', '.join(sorted(unknown))}")
    failures = 0
    for number, mutant in enumerate(chosen, 1):
        try:
            mutant.planted((ROOT / mutant.file).read_text())
            seen = options.check or is_seen(mutant)
        except NotApplicable as error:
            print(f"{number:3} of {len(chosen)}  {mutant.name}: DOES NOT APPLY: {error}", flush=True)
            failures += 1
            continue
        failures += not seen
        verdict = "applies" if options.check else "seen" if seen else "NOT SEEN"
        print(f"{number:3} of {len(chosen)}  {mutant.name}: {verdict}", flush=True)
    print(f"{len(chosen)} mistakes, {failures} not as they should be")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())

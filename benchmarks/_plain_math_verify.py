"""The contender of the scoring benchmark: one process that runs math-verify and nothing else.

Reads pairs as JSON lines (`[reference, answer]`) from the file in argv and prints the wall seconds they took.
"""

import json
import logging
import sys
import time
from pathlib import Path

# Nothing of this folder is meant by any import.
sys.path.pop(0)

from math_verify import parse, verify  # type: ignore[import-untyped]


def main() -> None:
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    pairs = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").split("\n") if line]
    verify(parse(r"\boxed{x^2}"), parse(r"\boxed{x\cdot x}"))  # what is made on first use is not measured
    started = time.perf_counter()
    for reference, answer in pairs:
        verify(parse(rf"\boxed{{{reference}}}"), parse(rf"\boxed{{{answer}}}"))
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main()

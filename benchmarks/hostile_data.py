"""How long hostile texts hold an event loop: the largest callback on 1 MiB, over all readers and texts.

  largest_callback   CPU of the longest callback ÷ parsing as many bytes of JSON, of all readers on a loop     (goal 12)
  milliseconds       the same in ms of CPU                                                                    (goal 50)

Texts and readers are those of `tests/test_hostile_data.py`. Each reader's dearest text of 16 KiB is grown to 1 MiB, or
to what its caller hands it at most, and the least of five measurements counts. It takes two minutes on an idle core.

    uv run python benchmarks/hostile_data.py [--json]
"""

import argparse
import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parent.parent)  # not this directory, whose openenv.py hides the package
from tests.support.hostile import CORPUS, MIB, READERS, dearest, in_parsings, largest_callback

GOALS = {"largest_callback": 12.0, "milliseconds": 50.0}


def main() -> None:
    """Measure every reader and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    detail: dict[str, object] = {}
    longest, most = 0.0, 0.0
    for reader in READERS:
        if not reader.on_loop:
            continue
        name = dearest(reader, 1 << 14)
        seconds, parsings = largest_callback(reader, CORPUS[name](MIB), 5), in_parsings(reader, name, MIB)
        detail[reader.name] = {"text": name, "ms": round(seconds * 1000, 1), "parsings": round(parsings, 2)}
        print(f"{reader.name}: {seconds * 1000:.1f} ms, {parsings:.2f} parsings ({name})", flush=True)
        longest, most = max(longest, seconds), max(most, parsings)
    ratios = {"largest_callback": round(most, 2), "milliseconds": round(longest * 1000, 1)}
    for name, value in ratios.items():
        print(f"{name}: {value:,.2f} (goal {GOALS[name]:g})")
    if options.json:
        print(json.dumps({"name": "hostile_data", "ratios": ratios, "goals": GOALS, "detail": detail}))


if __name__ == "__main__":
    main()

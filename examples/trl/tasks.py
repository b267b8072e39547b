"""The tasks of the examples, the model that learns them, and where it is served."""

from typing import Any

MODEL = "Qwen/Qwen3-4B-Instruct-2507"
ENGINE = "http://127.0.0.1:8001"
TASKS: dict[str, dict[str, Any]] = {
    "Write the sum of the numbers in numbers.txt to sum.txt.": {
        "setup": ["seq 1 100 > workdir/numbers.txt"],
        "verify": ["grep -qx 5050 workdir/sum.txt"],
        "agent_timeout_s": 300.0,
    },
    "Sort the lines of names.txt in place, without repeats.": {
        "setup": ["printf 'Cid\\nAda\\nBo\\nAda\\n' > workdir/names.txt"],
        "verify": ['test "$(cat workdir/names.txt)" = "$(printf \'Ada\\nBo\\nCid\')"'],
        "agent_timeout_s": 300.0,
    },
}
"""What is run before and after the agent, by its prompt."""

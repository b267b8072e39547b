"""Contenders of a benchmark, each in a process of its own, and the scripted model that all of them ask."""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks._child import process
from benchmarks._measure import Cost


@asynccontextmanager
async def model_server(
    steps: Sequence[Mapping[str, Any]] | Mapping[str, Any], delay: float = 0.0
) -> AsyncIterator[str]:
    """The URL of a scripted model in a process of its own, so that its CPU is not named.

    Args:
        steps: what it plays; a mapping is a script, or several.
        delay: seconds before each answer.
    """
    with tempfile.TemporaryDirectory() as scratch:
        script, port = Path(scratch) / "script.json", Path(scratch) / "port"
        script.write_text(json.dumps(steps))
        options = ["--script", str(script), "--port-file", str(port), "--delay", str(delay)]
        async with process("-m", "opencode_env.scripted_model", *options):
            while not port.exists() or not port.read_text().strip():
                await asyncio.sleep(0.05)
            yield f"http://127.0.0.1:{port.read_text().strip()}/v1"


async def cost_of(program: str, name: str, *arguments: str) -> Cost:
    """Run one contender, `program --contender NAME …`, which ends with `print_cost`.

    Raises:
        SystemExit: it failed.
    """
    argv = [sys.executable, program, "--contender", name, *arguments]
    contender = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await contender.communicate()
    found = re.search(rb"COST (\S+) (\S+)", out)
    if contender.returncode != 0 or found is None:
        raise SystemExit(f"contender {name} failed with exit code {contender.returncode}")
    return Cost(float(found[1]), float(found[2]))


def print_cost(cost: Cost) -> None:
    """A contender's last word to `cost_of`."""
    print(f"COST {cost.wall} {cost.cpu}")

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

from benchmarks._measure import Cost


@asynccontextmanager
async def model_server(steps: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> AsyncIterator[str]:
    """The URL of a scripted model in a process of its own, so that its CPU is nobody's; it plays steps, or scripts."""
    with tempfile.TemporaryDirectory() as scratch:
        script, port = Path(scratch) / "script.json", Path(scratch) / "port"
        script.write_text(json.dumps(steps))
        argv = [sys.executable, "-m", "opencode_env.scripted_model", "--script", str(script), "--port-file", str(port)]
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL)
        try:
            while not port.exists() or not port.read_text().strip():
                await asyncio.sleep(0.05)
            yield f"http://127.0.0.1:{port.read_text().strip()}/v1"
        finally:
            process.terminate()
            await process.wait()


async def cost_of(program: str, name: str, *arguments: str) -> Cost:
    """Run one contender, `program --contender NAME …`, which ends with `print_cost`.

    Raises:
        SystemExit: it failed.
    """
    argv = [sys.executable, program, "--contender", name, *arguments]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    found = re.search(rb"COST (\S+) (\S+)", out)
    if process.returncode != 0 or found is None:
        raise SystemExit(f"contender {name} failed with exit code {process.returncode}")
    return Cost(float(found[1]), float(found[2]))


def print_cost(cost: Cost) -> None:
    """A contender's last word to `cost_of`."""
    print(f"COST {cost.wall} {cost.cpu}")

"""What kept turns cost and save: rollouts with every turn kept ÷ without; a restored turn ÷ playing up to it.

  keep      rollouts against a model of 2 s, two at a time: every turn kept ÷ none (wall, CPU)
  restore   seconds to the next request of the kept turn 40 ÷ seconds in which the 40 turns are played up to it, with
            quick tools, and with a minute of tool time in all
  disk      50 kept turns of a repository of 200 MB ÷ the first of them, hard links counted once

Real OpenCode in confined local sandboxes. The model server is outside of the CPU that is measured. Run:
uv run python benchmarks/turns.py [--json] [--only keep restore disk]
"""

import argparse
import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy, ToolCall
from opencode_runs.turns.kept import KeptTurn, TurnRow, kept_turns

from benchmarks._contenders import model_server
from benchmarks._hosted import hosted_rows
from benchmarks._measure import Cost, adopt_orphans, machine, measured, report

GOALS = {"keep_wall": 1.05, "keep_cpu": 1.10, "restore_quick": 0.5, "restore_slow": 0.06, "disk": 2.0}
LAST = 40
"""The turn that is restored."""
KEEP_TURNS, KEEP_ROLLOUTS, MODEL_SECONDS = 6, 4, 2.0
DISK_TURNS = 50
REPOSITORY = "mkdir data && head -c 200000000 /dev/urandom | split -a 4 -b 100000 - data/file"


def steps(count: int, command: str) -> list[Reply]:
    """A script of so many turns, each but the last with one command."""
    call = ToolCall(name="bash", arguments={"command": command, "description": "a command"})
    return [*[Reply(tool_calls=(call,))] * (count - 1), Reply(text="done")]


def rows(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Equal tasks."""
    return [{"id": f"t{number}", "question": "Work.", "answer": "done", **fields} for number in range(count)]


def keeping(folder: Path | None, every: int = 1) -> dict[str, Any]:
    """Options of the environment."""
    return {} if folder is None else {"turns": {"keep": str(folder), "every": str(every)}}


async def keep(scratch: Path) -> tuple[dict[str, float], dict[str, object]]:
    """The cost of rollouts with every turn kept beside that without."""
    costs = {"without": Cost(), "with": Cost()}
    script = [one.model_dump(mode="json") for one in steps(KEEP_TURNS, "date +%N >>/app/dates")]
    async with model_server(script, MODEL_SECONDS) as base_url:
        for name, cost in costs.items():
            options = keeping(scratch / "kept" if name == "with" else None)
            async with hosted_rows(base_url, rows(KEEP_ROLLOUTS), options) as hosted:
                with measured(cost):
                    await hosted.run(hosted.slots, 2)
    kept = list(kept_turns(scratch / "kept"))
    if len(kept) != KEEP_TURNS * KEEP_ROLLOUTS or any(turn.unrestorable for turn in kept):
        raise SystemExit(f"not every turn was kept: {len(kept)}, {[turn.unrestorable for turn in kept]}")
    plain, full = costs["without"], costs["with"]
    held = statistics.median(turn.held_seconds for turn in kept)
    detail: dict[str, object] = {
        "keep": f"{plain.wall:.1f} s -> {full.wall:.1f} s, CPU {plain.cpu:.1f} -> {full.cpu:.1f} s, held {held:.3f} s"
    }
    return {"keep_wall": full.wall / plain.wall, "keep_cpu": full.cpu / plain.cpu}, detail


async def restore(scratch: Path) -> tuple[dict[str, float], dict[str, object]]:
    """Seconds to the request of the last turn: played up to, and restored."""
    ratios: dict[str, float] = {}
    detail: dict[str, object] = {}
    for name, command in (("quick", "date"), ("slow", f"sleep {60 / (LAST - 1):.2f}")):
        folder = scratch / name
        async with ScriptedModel(ScriptPolicy.of(*steps(LAST, command))) as model:
            async with hosted_rows(model.base_url, rows(1), keeping(folder, LAST)) as hosted:
                begun = time.time()
                await hosted.run(hosted.slots, 1)
            played = model.requests[LAST - 1].received - begun
            (turn,) = kept_turns(folder)
            seconds = [await restored(turn, model) for _ in range(3)]
        ratios[f"restore_{name}"] = statistics.median(seconds) / played
        detail[f"restore, {name} tools"] = (
            f"played {played:.1f} s, restored {', '.join(f'{one:.1f}' for one in seconds)} s"
        )
    return ratios, detail


async def restored(turn: KeptTurn, model: ScriptedModel) -> float:
    """Seconds to the first request of a rollout that goes on from a kept turn."""
    row = TurnRow(kept_turn=str(turn.place), digest=turn.digest).model_dump()
    seen = len(model.requests)
    async with hosted_rows(model.base_url, [row], {}) as hosted:
        begun = time.time()
        await hosted.run(hosted.slots, 1)
    return model.requests[seen].received - begun


async def disk(scratch: Path) -> tuple[dict[str, float], dict[str, object]]:
    """Bytes of many kept turns of one large repository beside those of one."""
    folder = scratch / "disk"
    async with (
        ScriptedModel(ScriptPolicy.of(*steps(DISK_TURNS, "date +%N >>/app/data/fileaaaa"))) as model,
        hosted_rows(model.base_url, rows(1, setup=[REPOSITORY]), keeping(folder)) as hosted,
    ):
        await hosted.run(hosted.slots, 1)
    turns = list(kept_turns(folder))
    first, whole = used(turns[0].place), used(folder)
    return {"disk": whole / first}, {"disk": f"{len(turns)} turns {whole / 1e6:.0f} MB, the first {first / 1e6:.0f} MB"}


def used(folder: Path) -> int:
    """Bytes on disk below a folder; a file with several names counts once."""
    found = (os.lstat(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names)
    return sum({(one.st_dev, one.st_ino): one.st_blocks * 512 for one in found}.values())


PARTS = {"keep": keep, "restore": restore, "disk": disk}


async def run_all(names: Sequence[str]) -> tuple[dict[str, float], dict[str, object]]:
    """The ratios and details of the parts."""
    ratios: dict[str, float] = {}
    detail: dict[str, object] = dict(machine())
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            found, said = await PARTS[name](Path(scratch))
        ratios |= found
        detail |= said
    return ratios, detail


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON as well")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts only")
    options = parser.parse_args()
    adopt_orphans()
    logging.disable(logging.CRITICAL)
    ratios, detail = asyncio.run(run_all(options.only))
    report("turns", ratios, {name: GOALS[name] for name in ratios}, detail, as_json=options.json)


if __name__ == "__main__":
    main()

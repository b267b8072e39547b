"""Every turn of the shipped samples can be gone back to: byte for byte the same request, and the same files.

One sample is played by the light program, with `WHOLE=1` all of them by OpenCode.
"""

import json
from pathlib import Path

import pytest
from opencode_env.scripted_model import SamplesPolicy
from opencode_runs.turns.kept import kept_turns

from tests.support.rows import write_rows
from tests.support.sample_rows import sample_rows
from tests.support.sizes import size
from tests.turns.playing import config_of, files, play, text

pytestmark = pytest.mark.usefixtures("light_but_in_whole")

PLAYED = size(["rotate-logs"], sorted(sample.id for sample in sample_rows()))


@pytest.mark.parametrize("name", PLAYED)
async def test_each_turn_of_a_sample_begins_with_its_request_and_its_files(name: str, tmp_path: Path) -> None:
    rows = [json.loads(sample.model_dump_json(exclude_none=True)) for sample in sample_rows() if sample.id == name]
    trunk = await play(config_of(write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "kept"), SamplesPolicy(1.0))
    (trace,) = trunk.traces
    assert (trace.ok, trace.reward) == (True, 1.0), trace.errors
    turns = list(kept_turns(tmp_path / "kept"))
    assert [(turn.turn, turn.unrestorable) for turn in turns] == [(at + 1, None) for at in range(trace.num_turns)]
    branches = await play(config_of(tmp_path / "kept", tmp_path / "again"), SamplesPolicy(1.0))
    for turn, branch in zip(turns, branches.traces, strict=True):
        assert (branch.ok, branch.reward, branch.num_branches) == (True, 1.0, 1), branch.errors
        assert text(branches.bodies(branch)[0]) == text(trunk.bodies(trace)[turn.turn - 1])
        first = next(iter(kept_turns(tmp_path / "again" / branch.id)))
        assert first.turn == turn.turn
        assert files(first) == files(turn)

"""Kept turns of a podman container: a branch and a resumed rollout ask what the trunk asked, with its files."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from opencode_env.kept_turns import keeping
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_runs.turns.kept import ENDED, TurnRow, kept_turns
from rollout_sandbox.podman import PodmanConfig

from tests.support.replies import bash
from tests.support.rows import write_rows
from tests.support.waiting import PATIENCE_SECONDS
from tests.turns.playing import config_of, files, play, text

pytestmark = [pytest.mark.opencode, pytest.mark.podman, pytest.mark.usefixtures("sandboxes")]

VERIFY = ["grep -q mine /etc/motd && test -s two"]
ROW = {"id": "one", "question": "Go.", "setup": "echo begun >begun", "verify": VERIFY}
SCRIPT = [
    bash("echo mine >/etc/motd; rm /etc/issue; mkfifo pipe; chmod 4750 begun; chown 7:7 begun"),
    bash("cat begun /etc/motd >two; ls -l --time-style=+ begun; ls /etc/issue; echo s >/dev/shm/s"),
    bash("cat two /dev/shm/s"),
    Reply(text="Done."),
]


def config(dataset: Path, keep: Path, image: str) -> Any:
    """The environment in a container."""
    return config_of(dataset, keep, agent={"runtime": PodmanConfig(image=image).model_dump()})


async def test_a_branch_and_a_resumed_rollout_go_on_in_another_container(
    podman_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        keeping, "CHILDREN_SECONDS", PATIENCE_SECONDS
    )  # what OpenCode started ends late when it is busy
    rows, kept = write_rows(tmp_path / "rows.jsonl", [ROW]), tmp_path / "kept"
    trunk = await play(config(rows, kept, podman_image), ScriptPolicy.of(*SCRIPT))
    (trace,) = trunk.traces
    assert (trace.ok, trace.reward) == (True, 1.0), trace.errors
    turns = list(kept_turns(kept))
    assert [(turn.turn, turn.unrestorable) for turn in turns] == [(at, None) for at in (1, 2, 3, 4)]
    before = {turn.turn: files(turn) for turn in turns}
    assert before[2]["/etc/issue"][0] == "x"
    asked = [text(body) for body in trunk.bodies(trace)]

    named = TurnRow(kept_turn=str(turns[1].place), digest=turns[1].digest).model_dump()
    dataset = write_rows(tmp_path / "turns.jsonl", [named])
    branched = await play(config(dataset, tmp_path / "branch", podman_image), ScriptPolicy.of(*SCRIPT))
    (branch,) = branched.traces
    assert (branch.ok, branch.reward, branch.num_branches) == (True, 1.0, 1), branch.errors
    assert branch.info["branch"]["same_request"] is True
    assert [text(body) for body in branched.bodies(branch)] == asked[1:]
    for turn in kept_turns(tmp_path / "branch"):
        assert (turn.unrestorable, files(turn)) == (None, before[turn.turn])

    (kept / trace.id / ENDED).unlink()  # as if its process had ended in the third call
    shutil.rmtree(kept / trace.id / "0004")
    (turns[2].place / "answer.msgpack").unlink()
    resumed = await play(config(rows, kept, podman_image), ScriptPolicy.of(*SCRIPT))
    (again,) = resumed.traces
    assert (again.id, again.reward, again.info["branch"]["resumed"]) == (trace.id, 1.0, True)
    assert [text(body) for body in resumed.bodies(again)] == asked[2:]

    other = await play(config_of(dataset), ScriptPolicy.of(*SCRIPT))
    assert "is of sandbox podman container of" in str(other.episodes[0].errors)

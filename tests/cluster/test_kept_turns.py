"""Kept turns on a cluster: who may go on with a rollout and write into its folder, and real nodes that share one."""

import errno
import fcntl
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from opencode_env.cluster import claims
from opencode_env.cluster.claims import CLAIM, Claim, Claims
from opencode_env.cluster.worker import Worker, versions
from opencode_env.errors import ClusterError, NodeLostError
from opencode_env.kept_turns import keeping
from opencode_env.kept_turns.disk_limit import DiskUse
from opencode_env.kept_turns.keeping import RolloutTurns, TurnsConfig, _claim, _finish, _take, _write_answer
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel, ScriptPolicy
from opencode_runs.turns.kept import ANSWER_FILE, ENDED, LOCK, kept_turns
from rollout_sandbox.file_lock import try_lock
from verifiers.v1.errors import EnvError

from tests.cluster.test_ray import timeless
from tests.support.held_model import HeldModel
from tests.support.ray_nodes import RayNode, RayNodes, ray_nodes
from tests.support.replies import bash
from tests.support.rows import write_rows
from tests.support.sizes import WHOLE
from tests.support.user_home import UserHome
from tests.support.waiting import until
from tests.turns.playing import same_ids
from tests.turns.test_format import made
from tests.turns.test_keeping import KIND, kept
from tests.turns.test_resuming import turn_of

whole = pytest.mark.skipif(not WHOLE, reason="played in make test-whole")


def claim_of(told: dict[str, Any]) -> Claim:
    return Claim(**told, tell=list[Any]().append)


async def lost(driver: Claims, rollout: Path) -> Claim:
    """The claim of a try on a rollout, which is over; its clock was far ahead, and its process holds the lock yet."""
    with suppress(NodeLostError):
        async with driver.playing() as told:
            (rollout / told["name"] / ".0002").mkdir(parents=True)
            raise NodeLostError("cut off")
    (rollout / LOCK).touch()
    os.utime(rollout / LOCK, (2.0**33, 2.0**33))
    return claim_of(told)


async def test_a_rollout_is_taken_up_once_and_only_when_its_try_is_over(tmp_path: Path) -> None:
    """Whatever clocks say, and whoever still holds its lock on a node that is cut off."""
    kept(rollout := tmp_path / "t1", 1)
    driver, other = (Claims(tmp_path, DiskUse(tmp_path, None)) for _ in range(2))
    with driver.holding(), other.holding():
        left = await lost(driver, rollout)
        held = try_lock(rollout / LOCK)
        async with other.playing() as told:
            assert _claim(tmp_path, KIND, 0.0, claim_of(told)) is None, "its driver lives, and may play it again"
        async with driver.playing() as first, driver.playing() as second:
            found = _claim(tmp_path, KIND, 0.0, claim_of(first))
            assert found is not None
            assert (found[0].turn.turn, found[0].resumed, found[1]) == (1, True, rollout)
            assert _take(rollout, replace(claim_of(second), lost=[left.name])) is None, "another was first"
            assert _claim(tmp_path, KIND, 0.0, claim_of(second)) is None
            assert [one.name for one in rollout.glob(f"{CLAIM}*")] == [first["name"]]
        async with driver.playing() as told:
            assert _claim(tmp_path, KIND, 0.0, claim_of(told)) is None, "what was cancelled stays so"
    with other.holding():
        async with other.playing() as told:
            found = _claim(tmp_path, KIND, 0.0, claim_of(told))
            assert found is not None, "its driver has ended"
    assert held is not None
    assert not driver.token.exists()


async def test_a_driver_that_began_while_a_try_waited_for_its_place_keeps_its_rollouts(tmp_path: Path) -> None:
    kept(rollout := tmp_path / "t1", 1)
    driver, killed, later = (Claims(tmp_path, DiskUse(tmp_path, None)) for _ in range(3))
    os.close(try_lock(killed.token) or -1)  # its token is left, and free
    with driver.holding():
        async with driver.playing() as waiting:
            with later.holding():
                async with later.playing() as told:
                    (rollout / told["name"]).mkdir()
                    (rollout / LOCK).touch()
                    assert _claim(tmp_path, KIND, 0.0, claim_of(waiting)) is None
                (rollout / told["name"]).rmdir()
                (rollout / f"{CLAIM}{killed.token.name.removeprefix('.driver-')}-1").mkdir()
                assert _claim(tmp_path, KIND, 0.0, claim_of(waiting)) is not None


async def test_a_driver_is_never_seen_without_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that looks in between would take it for one that was killed."""
    seen = list[Path]()

    def lock(path: Path) -> int | None:
        held = try_lock(path)
        seen.extend(tmp_path.glob(".driver-*"))
        return held

    monkeypatch.setattr(claims, "try_lock", lock)
    with (driver := Claims(tmp_path, DiskUse(tmp_path, None))).holding():
        assert (seen, [*tmp_path.iterdir()]) == ([], [driver.token])
        async with driver.playing() as told:
            assert told["ended"] == []


async def test_what_a_process_alone_has_left_is_taken_up_once_it_has_ended(tmp_path: Path) -> None:
    kept(tmp_path / "t1", 1)
    lock = try_lock(tmp_path / "t1" / LOCK)
    driver = Claims(tmp_path, DiskUse(tmp_path, None))
    with driver.holding():
        async with driver.playing() as told:
            assert _claim(tmp_path, KIND, 0.0, claim_of(told)) is None
            assert lock is not None
            os.close(lock)
            assert _claim(tmp_path, KIND, 0.0, claim_of(told)) is not None
            assert _claim(tmp_path, KIND, 2.0**33) is None, "nor does such a process take it from a living try"


@pytest.mark.parametrize("by", ["a cluster", "a process alone"])
async def test_a_try_that_plays_on_cannot_write_into_the_folder_that_another_has_taken_up(
    tmp_path: Path, by: str
) -> None:
    driver = Claims(tmp_path, DiskUse(tmp_path, None))
    place = kept(rollout := tmp_path / "t1", 1)
    with driver.holding():
        cut_off = await lost(driver, rollout)
        stale = RolloutTurns(KIND, TurnsConfig(), DiskUse(tmp_path, None), claimed=(rollout, None), claim=cut_off)
        async with driver.playing() as told:
            claim = claim_of(told) if by == "a cluster" else None
            found = _claim(tmp_path, KIND, 2.0**34, claim)
    if claim is None:
        assert found is None, "its driver may play it again"
        found = _claim(tmp_path, KIND, 2.0**34)
    assert found is not None
    before = sorted(rollout.rglob("*"))
    with pytest.raises(FileNotFoundError):
        _finish(stale._partial("0002"), rollout / "0002", made(2), {}, {})
    with pytest.raises(FileNotFoundError):
        _write_answer(stale._partial(ANSWER_FILE), place, [b"late"])
    stale.ended()
    assert sorted(rollout.rglob("*")) == before
    newer = RolloutTurns(KIND, TurnsConfig(), DiskUse(tmp_path, None), found[0], found[1:], claim)
    newer.ended()
    newer.close()
    assert (rollout / ENDED).exists()


async def test_a_claim_whose_folder_cannot_be_taken_away_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS, where a process on this machine has a file open there."""
    kept(rollout := tmp_path / "t1", 1)
    kept(tmp_path / "t2", 1)
    (tmp_path / "t2" / LOCK).touch()
    driver = Claims(tmp_path, DiskUse(tmp_path, None))
    with driver.holding():
        await lost(driver, rollout)
        monkeypatch.setattr(keeping, "REMOVAL_SECONDS", 0.1)
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
        async with driver.playing() as told:
            found = _claim(tmp_path, KIND, 0.0, claim_of(told))
    assert found is not None
    assert found[1] == tmp_path / "t2"


async def test_two_nodes_that_see_no_lock_of_each_other_do_not_both_take_up_what_a_process_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(rollout := tmp_path / "t1", 1)
    (rollout / LOCK).touch()
    driver = Claims(tmp_path, DiskUse(tmp_path, None))
    with driver.holding():
        async with driver.playing() as told, driver.playing() as other:

            def lock(path: Path) -> int | None:
                (rollout / other["name"]).mkdir()  # at the same time
                return try_lock(path)

            monkeypatch.setattr(keeping, "try_lock", lock)
            assert _claim(tmp_path, KIND, 0.0, claim_of(told)) is None
    assert [one.name for one in rollout.glob(f"{CLAIM}*")] == [other["name"]]


async def test_a_folder_that_cannot_be_looked_at_is_an_error_of_the_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a driver of another user is not known to have ended."""
    driver = Claims(tmp_path, DiskUse(tmp_path, None))
    errors: list[OSError] = [PermissionError("no"), OSError(errno.ENOLCK, "no locks available")]

    def flock(*_: object) -> None:
        raise errors.pop(0)

    with driver.holding():
        monkeypatch.setattr(fcntl, "flock", flock)
        async with driver.playing() as told:
            assert told["ended"] == []
        with pytest.raises(EnvError, match="no locks available"):
            async with driver.playing():
                pass


async def test_what_all_nodes_keep_has_one_limit(tmp_path: Path) -> None:
    disk = DiskUse(tmp_path, 3 << 20)
    driver = Claims(tmp_path, disk)
    with driver.holding():
        async with driver.playing() as first, driver.playing() as second:
            tried = [(first, tmp_path / "t1"), (second, tmp_path / "t2")]
            for turn in (1, 2):
                for told, rollout in tried:
                    Claim(**told, tell=driver.kept).kept(kept(rollout, turn, size=1 << 20), restorable=True)
            assert [turn.turn for turn in kept_turns(tmp_path)] == [2, 2]
            assert disk.running == {tmp_path / "t1", tmp_path / "t2"}
        assert disk.running == set()


async def test_a_folder_that_a_node_does_not_see_is_refused_by_name(tmp_path: Path) -> None:
    order = {"token": str(tmp_path / "kept" / ".driver-1"), "files": [], "versions": versions()}
    answer = json.loads(await Worker().start(json.dumps(order).encode()))
    assert f"--env.turns.keep: {tmp_path / 'kept'} is not one that it shares" in answer["refused"]
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match=r"--env\.turns\.keep: .* name a folder"):
        Claims(tmp_path / "file", DiskUse(tmp_path, None)).holding().__enter__()


SCRIPT = [*(bash(f"echo {number} >>done") for number in range(4)), Reply(text="Done.")]
ROWS = [
    {"id": name, "question": f"Count {name}.", "setup": "echo setup >>done", "verify": ['[ "$(wc -l <done)" = 5 ]']}
    for name in ("one", "two")
]


def is_held(request: ChatRequest) -> bool:
    return "Count one." in request.prompt and request.turn == 2


def held_at(nodes: RayNodes) -> HeldModel:
    """A model that holds the third call of the first row's rollout."""
    return HeldModel(same_ids(ScriptPolicy.of(*SCRIPT)), is_held, host=nodes.host)


@pytest.fixture(scope="module")
def nodes(light_opencode: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """Two nodes, which do not end themselves when they are cut off."""
    variables = {"RAY_gcs_rpc_server_reconnect_timeout_s": "3600"}
    with ray_nodes(tmp_path_factory.mktemp("nodes"), 2, variables=variables) as made_nodes:
        yield made_nodes


def arguments(nodes: RayNodes, kept: Path, rows: list[dict[str, Any]], *more: str) -> list[str]:
    dataset = write_rows(kept.parent / "rows.jsonl", rows)
    given = ["opencode-env", "--env.taskset.dataset", str(dataset), "--env.turns.keep", str(kept), *more]
    cluster = {"type": "ray", "address": nodes.address, "per-worker": "1", "max-workers": "2"}
    return [*given, *(word for name, value in cluster.items() for word in (f"--env.cluster.{name}", value))]


@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
async def test_a_rollout_of_a_killed_worker_goes_on_from_its_kept_turn_in_an_older_one(
    home: UserHome, nodes: RayNodes, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    given = arguments(nodes, folder, ROWS, "--env.retries.max-retries", "1", "-c", "2")
    async with held_at(nodes) as model, home.running("r", model.base_url, *given, env=nodes.variables) as run:
        await until(lambda: len(list(folder.glob(f"*/{ENDED}"))) == 1 or run.process.poll() is not None)
        await until(lambda: (list(folder.glob("*/0003/turn.json")) and model.held) or run.process.poll() is not None)
        assert run.process.poll() is None, run.log
        (lock,) = [one for one in folder.glob(f"*/{LOCK}") if not (one.parent / ENDED).exists()]
        os.utime(lock, (2.0**33, 2.0**33))  # of a machine whose clock is far ahead
        (lost,) = [node for node in nodes.nodes if node.playing]
        os.kill(lost.workers[0], signal.SIGKILL)
        model.released.set()
        finished = await run.finish()
    assert finished.exit_code == 0, finished.log
    one, two = (finished.episode(name) for name in ("one", "two"))
    assert [error.type for error in one.errors] == ["NodeLostError"]
    (again,), (other,) = one.traces, two.traces
    assert (again.reward, again.num_turns, again.num_branches) == (1.0, 5, 1)
    assert again.info["branch"]["resumed"] is True
    assert again.info["agent"]["node"] == other.info["agent"]["node"] != lost.address
    assert finished.log.count("a worker is ready") == 2
    asked = Counter(turn_of(request.body) for request in model.requests if "Count one." in str(request.body))
    assert asked == {1: 1, 2: 1, 3: 2, 4: 1, 5: 1}
    for trace in (again, other):
        assert [turn.turn for turn in kept_turns(folder / trace.id)] == [1, 2, 3, 4, 5]
    turn = next(turn for turn in kept_turns(folder / again.id) if turn.turn == 3)
    branches = arguments(nodes, folder, [{"kept_turn": str(turn.place), "digest": turn.digest}], "-r", "2")
    async with (
        ScriptedModel(same_ids(ScriptPolicy.of(*SCRIPT)), host=nodes.host) as one_more,
        home.running("branches", one_more.base_url, *branches, env=nodes.variables) as run,
    ):
        finished = await run.finish()
    assert finished.exit_code == 0, finished.log
    played = [trace for episode in finished.episodes for trace in episode.traces]
    assert [(trace.reward, trace.num_turns, trace.info["branch"]["same_request"]) for trace in played] == [
        (1.0, 5, True)
    ] * 2
    assert Counter(turn_of(request.body) for request in one_more.requests) == {3: 2, 4: 2, 5: 2}
    await until(lambda: not nodes.playing and not home.processes())


SLEEP = "sleep 86399"
ASLEEP = [bash("echo 0 >>done"), bash(f"{SLEEP}; echo 1 >>done"), *SCRIPT[2:]]
"""Of whose tools the second ends when it is killed."""


def sleeping(node: RayNode) -> list[int]:
    return [pid for pid, command in node.home.processes().items() if command.strip() == SLEEP]


@whole
@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
async def test_a_node_that_is_cut_off_and_plays_on_cannot_write_into_its_rollout(
    home: UserHome, nodes: RayNodes, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    given = arguments(nodes, folder, ROWS[:1], "--env.retries.max-retries", "1")
    model = ScriptedModel(same_ids(ScriptPolicy.of(*ASLEEP)), host=nodes.host)
    async with model, home.running("r", model.base_url, *given, env=nodes.variables) as run:
        await until(lambda: any(sleeping(node) for node in nodes.nodes) or run.process.poll() is not None)
        cut_off, other = sorted(nodes.nodes, key=lambda node: not sleeping(node))
        await until(lambda: bool(list(folder.glob(f"*/0002/{ANSWER_FILE}"))))
        cut_off.cut_off()
        await until(lambda: bool(sleeping(other)) or run.process.poll() is not None)
        (rollout,) = [one for one in folder.iterdir() if one.is_dir()]
        before = sorted(rollout.rglob("*"))
        os.kill(sleeping(cut_off)[0], signal.SIGKILL)  # its agent asks for the third turn
        await until(lambda: any("did not keep turn 3" in log for log in cut_off.worker_logs))
        assert sorted(rollout.rglob("*")) == before
        os.kill(sleeping(other)[0], signal.SIGKILL)
        finished = await run.finish()
    assert finished.exit_code == 0, finished.log
    (episode,) = finished.episodes
    (trace,) = episode.traces
    assert (trace.reward, trace.num_turns, trace.info["agent"]["node"]) == (1.0, 5, other.address)
    assert trace.info["branch"]["resumed"] is True
    assert [turn.turn for turn in kept_turns(rollout)] == [1, 2, 3, 4, 5]
    cut_off.joined_again()
    cut_off.restart()
    await until(lambda: not nodes.playing and not home.processes())


@whole
@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
@pytest.mark.parametrize("on", ["a cluster", "one machine"])
async def test_a_run_on_a_cluster_is_resumed_and_keeps_what_a_local_one_keeps(
    home: UserHome, nodes: RayNodes, tmp_path: Path, on: str
) -> None:
    folder, local = tmp_path / "kept", tmp_path / "local"
    given = arguments(nodes, folder, ROWS, "-c", "2")
    alone = given[: given.index("--env.cluster.type")]
    async with held_at(nodes) as model:
        async with home.running("r", model.base_url, *given, env=nodes.variables) as run:
            await until(lambda: bool(model.held and list(folder.glob(f"*/{ENDED}"))) or run.process.poll() is not None)
            run.process.kill()
            await run.finish()
        model.released.set()
        if on == "a cluster":
            finished = await home.run("r", model.base_url, *given, "--resume", env=nodes.variables)
        else:  # which is another run: the folder decides
            finished = await home.run("other", model.base_url, *alone)
        here = await home.run("local", model.base_url, *alone[:3], "--env.turns.keep", str(local), *alone[5:])
    assert finished.exit_code == here.exit_code == 0, finished.log + here.log
    assert finished.trace("one").info["branch"]["resumed"] is True
    for name in ("one", "two"):
        there, alike = finished.trace(name), here.trace(name)
        assert (there.reward, there.num_turns) == (alike.reward, alike.num_turns) == (1.0, 5)
        far, near = (kept_turns(place / trace.id) for place, trace in ((folder, there), (local, alike)))
        alike_in = attrgetter("turn", "unrestorable", "settings", "task_hash", "digest")
        assert [alike_in(turn) for turn in far] == [alike_in(turn) for turn in near]
    records = [timeless(run.trace("two").model_dump(mode="json")) for run in (finished, here)]
    for record in records:
        del record["info"]["turns"], record["metrics"]["turns_held_seconds"], record["metrics"]["turns_kept_seconds"]
    assert records[0] == records[1]
    await until(lambda: not nodes.playing and not home.processes())


@whole
@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
async def test_a_real_node_that_does_not_see_the_folder_is_refused_by_name(
    home: UserHome, nodes: RayNodes, tmp_path: Path
) -> None:
    (folder := tmp_path / "kept").mkdir(mode=0o700)
    node, enter = nodes.nodes[0], list(nodes.nodes[0].enter)
    node.enter += ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {folder}; exec "$@"', "sh"]
    node.restart()
    given = arguments(nodes, folder, ROWS, "--env.cluster.resources", json.dumps({node.name: 1}))
    async with held_at(nodes) as model:
        finished = await home.run("r", model.base_url, *given, env=nodes.variables)
    assert finished.exit_code != 0
    assert f"node {node.address} cannot play rollouts" in finished.log
    assert f"--env.turns.keep: {folder} is not one that it shares with the driver" in finished.log
    node.enter = enter
    node.restart()

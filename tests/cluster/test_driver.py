"""How episodes are packed into workers, what becomes of a lost one, and what is refused before anything is played."""

import asyncio
import json
import multiprocessing
import re
import socket
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.cli_agent.cluster_play import Watched, files_read
from opencode_env.cli_agent.evaluation import EvaluationReport
from opencode_env.cluster import ray_engine
from opencode_env.cluster.config import ClusterConfig
from opencode_env.cluster.driver import Cluster, Started
from opencode_env.cluster.ray_engine import OWN_MEMORY, RayEngine, monitored
from opencode_env.cluster.worker import Worker, digest, versions
from opencode_env.errors import ClusterError, NodeLostError, NodeMemoryError
from pydantic import ValidationError
from verifiers.v1.episode import WireEpisode
from verifiers.v1.errors import EnvError
from verifiers.v1.graph import MessageNode
from verifiers.v1.serve.delta import DeltaStreamer, dump, pack, unpack
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import Error, TraceTask, WireTrace
from verifiers.v1.types import AssistantMessage, UserMessage

from tests.support.user_home import closed_port
from tests.support.waiting import until

EPISODE: WireEpisode = WireEpisode(task=TraceTask(type="Task", data=WireTaskData(idx=7)))


AGENT: dict[str, Any] = {"config": {}}


class HeldEngine:
    """An engine whose workers play until they are let go, and that says what was asked of it."""

    alone = here = True

    def __init__(self, room: int = 99, failure: Exception | None = None) -> None:
        self.room, self.failure = room, failure or ClusterError("no room")
        self.starting, self.started, self.ended = 0, 0, list[int]()
        self.failing = list[Exception]()
        self.drained = set[str]()
        self.deltas = list[dict[str, Any]]()
        self.held = asyncio.Event()
        self.held.set()
        self.played: list[tuple[int, bytes, asyncio.Future[tuple[str, bytes]]]] = []

    async def connect(self) -> None:
        pass

    async def start_worker(self, order: bytes) -> Started:
        assert order == b"order"
        self.starting += 1
        await self.held.wait()
        await asyncio.sleep(0)
        if self.failing or self.started == self.room:
            raise self.failing.pop() if self.failing else self.failure
        self.started += 1
        return Started(self.started - 1, "10.0.0.1", f"worker {self.started - 1}", "node", self.here)

    async def play(self, handle: Any, request: bytes) -> AsyncGenerator[tuple[str, bytes], None]:
        future: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()
        self.played.append((handle, request, future))
        for delta in self.deltas:
            yield "delta", pack(delta)
        yield await future

    async def leaving(self) -> set[str]:
        return self.drained

    async def end(self, handle: Any) -> None:
        self.ended.append(handle)

    async def close(self) -> None:
        assert len(self.ended) <= self.started

    def answer(self, kind: str, record: bytes) -> None:
        for _, _, future in self.played:
            if not future.done():
                future.set_result((kind, record))

    def workers(self) -> list[int]:
        return sorted(handle for handle, _, future in self.played if not future.done())


@asynccontextmanager
async def cluster(engine: HeldEngine, idle: float = 1000.0, **options: Any) -> AsyncIterator[Cluster]:
    config = ClusterConfig(type="ray", address="head:1", **options)
    made = Cluster(config, engine, b"order", idle_seconds=idle, look_seconds=0.01)
    async with made.serving():
        yield made


async def test_rollouts_are_packed_and_idle_workers_end() -> None:
    engine = HeldEngine()
    async with cluster(engine, idle=0.0, per_worker=2) as made:
        playing = [asyncio.ensure_future(made.play(b"request", "")) for _ in range(5)]
        await until(lambda: len(engine.played) == 5)
        assert engine.workers() == [0, 0, 1, 1, 2]
        engine.answer("episode", pack(dump(EPISODE)))
        episodes = await asyncio.gather(*playing)
        assert [episode.task.data.idx for episode, _ in episodes] == [7] * 5
        await until(lambda: sorted(engine.ended) == [0, 1, 2])


@pytest.mark.parametrize(("room", "options"), [(99, {"max_workers": 2}), (2, {})])
async def test_rollouts_wait_where_there_is_no_further_worker(room: int, options: dict[str, int]) -> None:
    engine = HeldEngine(room)
    async with cluster(engine, per_worker=1, **options) as made:
        playing = [asyncio.ensure_future(made.play(b"request", "")) for _ in range(4)]
        await until(lambda: len(engine.played) == 2)
        engine.answer("episode", pack(dump(EPISODE)))
        await until(lambda: len(engine.played) == 4)
        assert engine.workers() == [0, 1]
        engine.answer("episode", pack(dump(EPISODE)))
        await asyncio.gather(*playing)
    assert sorted(engine.ended) == [0, 1]


async def test_no_worker_at_all_is_an_error_of_the_run() -> None:
    async with cluster(HeldEngine(0)) as made:
        with pytest.raises(ClusterError, match="no room"):
            await made.play(b"request", "")


@pytest.mark.parametrize("kind", [NodeLostError, NodeMemoryError])
async def test_a_lost_worker_gets_no_further_rollout(kind: type[Exception]) -> None:
    engine = HeldEngine()
    async with cluster(engine, per_worker=2) as made:
        lost = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: len(engine.played) == 1)
        engine.played[0][2].set_exception(kind("killed"))
        with pytest.raises(kind, match="worker 0: killed"):
            await lost
        again = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: len(engine.played) == 2)
        assert engine.workers() == [1]
        engine.answer("episode", pack(dump(EPISODE)))
        await again
    assert engine.ended == [1]


async def test_a_cancelled_rollout_frees_its_place() -> None:
    engine = HeldEngine()
    async with cluster(engine, per_worker=1, max_workers=1) as made:
        dropped = asyncio.ensure_future(made.play(b"first", ""))
        waiting = asyncio.ensure_future(made.play(b"second", ""))
        await until(lambda: len(engine.played) == 1)
        dropped.cancel()
        await until(lambda: len(engine.played) == 2)
        assert engine.played[1][1] == b"second"
        engine.answer("episode", pack(dump(EPISODE)))
        await waiting


@pytest.mark.parametrize(
    ("kind", "record", "words"),
    [("episode", pack({"ok": "perhaps"}), "valid boolean"), ("failed", b"no such task", "no such task")],
)
async def test_what_is_no_episode_is_an_error_of_that_rollout(kind: str, record: bytes, words: str) -> None:
    engine = HeldEngine()
    async with cluster(engine) as made:
        playing = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: len(engine.played) == 1)
        engine.answer(kind, record)
        with pytest.raises(EnvError, match=words):
            await playing
        again = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: len(engine.played) == 2)
        assert engine.workers() == [0]
        engine.answer("episode", pack(dump(EPISODE)))
        await again


async def test_a_start_that_fails_beside_another_is_no_end() -> None:
    """Nor is an error that no engine should raise, which would leave everybody waiting."""
    engine = HeldEngine(1)
    engine.failure = RuntimeError("broken")
    async with cluster(engine, per_worker=1) as made:
        playing = [asyncio.ensure_future(made.play(b"request", "")) for _ in range(2)]
        await until(lambda: len(engine.played) == 1)
        engine.answer("episode", pack(dump(EPISODE)))
        await until(lambda: len(engine.played) == 2)
        engine.answer("episode", pack(dump(EPISODE)))
        await asyncio.gather(*playing)
    async with cluster(HeldEngine(0, RuntimeError("broken"))) as made:
        with pytest.raises(ClusterError, match="RuntimeError: broken"):
            await made.play(b"request", "")


async def test_a_worker_lost_at_its_start_fails_those_that_it_would_have_played() -> None:
    engine = HeldEngine()
    engine.failing = [NodeLostError("gone")] * 2
    async with cluster(engine, per_worker=2) as made:
        playing = [asyncio.ensure_future(made.play(b"request", "")) for _ in range(3)]
        await until(lambda: len(engine.played) == 1)
        engine.answer("episode", pack(dump(EPISODE)))
        await playing[2]
        assert [str(one.exception()) for one in playing[:2]] == ["gone", "gone"]


async def test_a_worker_that_came_too_late_ends_as_any_idle_one() -> None:
    engine = HeldEngine()
    engine.held.clear()
    async with cluster(engine, idle=0.0) as made:
        dropped = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: engine.starting == 1)
        dropped.cancel()
        engine.held.set()
        await until(lambda: engine.ended == [0])
        assert engine.played == []


async def test_a_worker_that_is_ready_as_the_driver_ends_is_ended() -> None:
    """Python's `wait_for` gives a result that has just come in place of its cancellation."""
    engine = HeldEngine()
    engine.held.clear()

    async def start_worker(order: bytes) -> Started:
        engine.started += 1
        with suppress(asyncio.CancelledError):
            await engine.held.wait()
        return Started(0, "10.0.0.1", "worker 0", "node", True)

    engine.start_worker = start_worker  # type: ignore[method-assign]
    async with cluster(engine) as made:
        dropped = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: engine.started == 1)
        dropped.cancel()
    assert engine.ended == [0]


async def test_no_worker_is_started_for_who_still_waits_as_the_driver_ends() -> None:
    engine = HeldEngine()
    async with cluster(engine, per_worker=1, max_workers=1) as made:
        playing = [asyncio.ensure_future(made.play(b"request", "")) for _ in range(2)]
        await until(lambda: len(engine.played) == 1 and made._later is not None)
    await asyncio.sleep(0.05)
    assert (engine.starting, engine.ended, len(made._starting)) == (1, [0], 0)
    for one in playing:
        one.cancel()
    await asyncio.wait(playing)


async def test_who_waits_behind_a_start_that_was_lost_waits_no_minute_for_the_next() -> None:
    engine = HeldEngine()
    engine.held.clear()
    engine.failing = [NodeLostError("gone")] * 2
    async with cluster(engine, per_worker=1) as made:
        playing = [asyncio.ensure_future(made.play(b"request", "")) for _ in range(2)]
        await until(lambda: engine.starting == 2)
        engine.held.set()
        await until(lambda: len(engine.played) == 1)
        engine.answer("episode", pack(dump(EPISODE)))
        await playing[1]
        assert str(playing[0].exception()) == "gone"


async def test_a_loopback_endpoint_is_right_on_the_drivers_node_alone() -> None:
    engine = HeldEngine()
    async with cluster(engine) as made:
        made.require_reachable("http://127.0.0.1:1/v1")
        engine.alone = engine.here = False
        with pytest.raises(ClusterError, match="each node itself"):
            made.require_reachable("http://127.0.0.1:1/v1")
        with pytest.raises(ClusterError, match="each node itself"):  # a node that joined later
            await made.play(b"request", "http://127.0.0.1:1/v1")
        made.urls = ["http://localhost/v1"]  # of a judge
        with pytest.raises(ClusterError, match="localhost"):
            made.require_reachable("http://10.0.0.1/v1")
    assert engine.played == []


async def test_a_worker_of_a_drained_node_finishes_and_gets_no_more() -> None:
    engine = HeldEngine()
    async with cluster(engine, per_worker=2) as made:
        first = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: len(engine.played) == 1)
        engine.drained = {"node"}
        await until(lambda: made._workers[0].leaving)
        engine.drained = set()
        second = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: len(engine.played) == 2)
        assert engine.workers() == [0, 1]
        engine.answer("episode", pack(dump(EPISODE)))
        await asyncio.gather(first, second)
        await until(lambda: engine.ended == [0])


async def test_a_process_without_a_worker_gets_the_next_that_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", multiprocessing.current_process)  # of both
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    busy, other = HeldEngine(), HeldEngine()
    options = {"per_worker": 1, "max_workers": 1}
    async with cluster(busy, **options) as first, cluster(other, **options) as second:
        playing = [asyncio.ensure_future(first.play(b"request", "")) for _ in range(2)]
        await until(lambda: len(busy.played) == 1)
        waiting = asyncio.ensure_future(second.play(b"request", ""))
        await until(lambda: first._workers[0].leaving)
        busy.answer("episode", pack(dump(EPISODE)))
        await until(lambda: len(other.played) == 1)
        assert len(busy.played) == 1
        other.answer("episode", pack(dump(EPISODE)))
        await waiting
        await until(lambda: len(busy.played) == 2)  # and back
        busy.answer("episode", pack(dump(EPISODE)))
        await asyncio.gather(*playing)


async def test_workers_that_cannot_be_counted_are_an_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    async with cluster(HeldEngine(), max_workers=1) as made:
        with pytest.raises(ClusterError, match="cannot be counted"):
            await made.play(b"request", "")


async def test_a_change_that_cannot_be_shown_costs_no_rollout() -> None:
    engine, seen = HeldEngine(), list[Any]()

    def watch(delta: dict[str, Any]) -> None:
        seen.append(delta)
        raise ValueError("no trace")

    engine.deltas = [{}, {}]
    async with cluster(engine) as made:
        playing = asyncio.ensure_future(made.play(b"request", "", watch))
        await until(lambda: len(engine.played) == 1)
        await until(lambda: len(seen) == 2 or playing.done())
        engine.answer("episode", pack(dump(EPISODE)))
        await playing


async def test_no_worker_is_started_for_rollouts_that_were_dropped() -> None:
    engine = HeldEngine()
    engine.held.clear()
    async with cluster(engine, per_worker=2) as made:
        first = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: engine.starting == 1)
        dropped = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: len(made._waiting) == 2)
        dropped.cancel()
        await asyncio.wait([dropped])
        second = asyncio.ensure_future(made.play(b"request", ""))
        await until(lambda: made._waiting[-1] is not made._waiting[0])
        engine.held.set()
        await until(lambda: len(engine.played) == 2)
        engine.answer("episode", pack(dump(EPISODE)))
        await asyncio.gather(first, second)
    assert engine.starting == 1


async def test_a_process_that_has_joined_a_cluster_is_told_so() -> None:
    """Ray holds one connection a process, which a second environment would end for the first."""
    pytest.importorskip("ray")
    engine = RayEngine(ClusterConfig(type="ray", address=f"127.0.0.1:{closed_port()}"))
    context = SimpleNamespace(gcs_address="10.0.0.1:6379")
    engine._ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    with pytest.raises(ClusterError, match=r"joined the Ray cluster at 10\.0\.0\.1:6379 already"):
        await engine.connect()


def test_a_call_of_rays_without_a_cluster_begins_none() -> None:
    pytest.importorskip("ray")
    ray = RayEngine(ClusterConfig(type="ray", address="head:1"))._ray
    with pytest.raises(ray.exceptions.RaySystemError, match="has not been started"):
        ray.nodes()
    assert not ray.is_initialized()


async def test_a_port_that_is_no_heads_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    answering = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        engine = RayEngine(ClusterConfig(type="ray", address=address, start_timeout=0.1))
        monkeypatch.setattr(ray_engine, "join_ray", lambda *_: answering.wait())
        with pytest.raises(ClusterError, match=r"TimeoutError .*own port"):
            await engine.connect()
    answering.set()


async def test_what_ray_says_last_of_a_cluster_that_cannot_be_joined_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")

    def join(*_: object) -> None:
        raise ConnectionError("Failed to connect") from ValueError("the token is wrong")

    monkeypatch.setattr(ray_engine, "join_ray", join)
    with socket.create_server(("127.0.0.1", 0)) as other:
        engine = RayEngine(ClusterConfig(type="ray", address=f"127.0.0.1:{other.getsockname()[1]}"))
        with pytest.raises(ClusterError, match=r"one of its nodes: ConnectionError: .*: the token is wrong"):
            await engine.connect()


async def play_in_a_pool(tried: Any, active: Any, most: Any) -> None:
    """Two rollouts of one process, the first of which ends when both processes have a worker or wait for one."""

    class Counted(HeldEngine):
        async def play(self, handle: Any, request: bytes) -> AsyncGenerator[tuple[str, bytes], None]:
            with active.get_lock():
                active.value += 1
                most.value = max(most.value, active.value)
            await until(lambda: tried.value == 2)
            yield "episode", pack(dump(EPISODE))
            active.value -= 1

    async with cluster(Counted(), idle=0.0, per_worker=1, max_workers=1) as made:
        playing = [asyncio.ensure_future(made.play(b"request", "")) for _ in range(2)]
        await until(lambda: made._workers or made._later is not None)
        with tried.get_lock():
            tried.value += 1
        await asyncio.gather(*playing)


def play_in_a_pool_process(*counters: Any) -> None:
    asyncio.run(play_in_a_pool(*counters))


@pytest.mark.slow
def test_processes_of_one_pool_have_as_many_workers_together_as_one() -> None:
    spawn = multiprocessing.get_context("spawn")
    tried, active, most = (spawn.Value("i", 0) for _ in range(3))
    pool = [spawn.Process(target=play_in_a_pool_process, args=(tried, active, most)) for _ in range(2)]
    for process in pool:
        process.start()
    for process in pool:
        process.join()
    assert [process.exitcode for process in pool] == [0, 0]
    assert (tried.value, active.value, most.value) == (2, 0, 1)


def test_the_traces_of_a_node_are_seen_as_they_grow_and_end_as_they_are() -> None:
    """A watcher keeps the object that it was shown."""
    trace, other = [WireTrace.model_validate({"task": EPISODE.task, "agent": AGENT}) for _ in range(2)]
    live, seen, gone, changes = list[Any]([trace, other]), list[Any](), list[Any](), list[Any]()
    watched = Watched(seen.append, gone.append)
    streamer = DeltaStreamer(lambda: live, lambda delta: asyncio.sleep(0))

    def flush() -> None:
        for _, delta, cursor in streamer.diff():
            watched.change(unpack(pack(delta)))
            if cursor is not None:
                streamer.cursors[delta["trace"]] = cursor
            else:
                streamer.cursors.pop(delta["trace"])

    flush()
    assert [one.id for one in seen] == [trace.id, other.id]
    seen[0].watch(changes.append)
    trace.nodes.append(MessageNode(message=UserMessage(content="x")))
    trace.info["a"] = 1
    live.remove(other)
    flush()
    assert [one.id for one in gone] == [other.id]
    trace.nodes.append(MessageNode(message=AssistantMessage(content="y"), parent=0, sampled=True))
    flush()
    assert dump(seen[0]) == dump(trace)
    assert len(changes) == 2
    trace.ok = True
    trace.info.clear()
    finished = WireTrace.model_validate(unpack(pack(dump(trace))))
    assert watched.end(finished) is seen[0]
    assert dump(seen[0]) == dump(trace)
    late = trace.model_copy(update={"id": "late"})
    assert watched.end(late) is late
    assert seen[2:] == [late]


def test_the_final_table_has_a_row_for_each_node() -> None:
    played = WireEpisode(task=EPISODE.task, ok=True)
    trace = WireTrace.model_validate({"task": EPISODE.task, "agent": AGENT, "ok": True})
    trace.info["agent"] = {"node": "10.0.0.1", "rollout_seconds": 2.0}
    played.traces.append(trace)
    error = Error(type="NodeLostError", message="worker on node 10.0.0.2 (process 7): ActorDiedError")
    report = EvaluationReport(local=False, limited=True)
    report.active = True
    for episode in (played, WireEpisode(task=EPISODE.task, errors=[error])):
        report.finish(episode)
    rows = [line.split()[:5] for line in report._closing(None)]
    assert rows[-2:] == [["node", "10.0.0.1", "1", "0", "0.000"], ["node", "10.0.0.2", "1", "1", "-"]]


async def test_a_local_file_that_a_node_lacks_is_named_at_its_start(tmp_path: Path) -> None:
    """Not what is written, nor what the driver reads for all."""
    (tmp_path / "backends.yaml").write_text("backends: []")
    (tmp_path / "logs").mkdir()
    config = OpenCodeEnvConfig.model_validate(
        {
            "backends": {"file": tmp_path / "backends.yaml"},
            "agent": {"harness": {"log_dir": tmp_path / "logs"}},
            "taskset": {"id": "opencode_env", "dataset": str(tmp_path / "backends.yaml")},
        }
    )
    assert files_read(config) == [str(tmp_path / "backends.yaml")]
    order = {"token": None, "versions": versions(), "files": [*files_read(config), str(tmp_path / "lacking")]}
    answer = json.loads(await Worker().start(json.dumps(order).encode()))
    assert answer["refused"].endswith(f"must lie there too, at the same place: {tmp_path / 'lacking'}")


async def test_a_node_with_another_version_is_refused_by_name() -> None:
    here = versions()
    order: dict[str, Any] = {
        "token": None,
        "files": [],
        "versions": {**here, "opencode-env": "9.9", "verifiers": "8.8"},
    }
    answer = json.loads(await Worker().start(json.dumps(order).encode()))
    wrong = f"opencode-env {here['opencode-env']} instead of 9.9, verifiers {here['verifiers']} instead of 8.8"
    assert sorted(answer["refused"].removeprefix("ClusterError: it has ").split(", ")) == wrong.split(", ")


def test_two_trees_of_one_version_differ_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_package_of_two_trees"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "data" / "rows.jsonl").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    before = digest([package.name])
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "made.pyc").touch()
    assert digest([package.name]) == before
    (package / "data" / "rows.jsonl").write_text("{} ")
    assert digest([package.name]) != before
    assert all("files" in found for name, found in versions().items() if name != "Python")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "127.8.0.1",
        "[::1]",
        "0.0.0.0",
        "a.localhost",
        "127.1",
        "2130706433",
        "0x7f.1",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
        "0",
        "LOCALHOST.",
    ],
)
def test_an_endpoint_that_means_each_node_is_refused(host: str) -> None:
    made = Cluster(ClusterConfig(type="ray", address="head:1"), engine := HeldEngine(), b"order")
    engine.alone = False
    with pytest.raises(ClusterError, match="each node itself"):
        made.require_reachable(f"http://{host}:8000/v1")
    for other in ("http://10.0.0.1:8000/v1", "https://localhost.example.org/v1"):
        made.require_reachable(other)


def test_the_memory_monitor_may_not_be_an_agents_way_out() -> None:
    assert monitored("0", None, None) == ""
    assert monitored(None, 0, None) == ""  # the sandboxes are elsewhere
    assert monitored(None, 8 << 30, (8 << 30) + OWN_MEMORY) == ""
    assert "9 GiB" in monitored(None, 8 << 30, 8 << 30)
    assert "a limit that control groups keep" in monitored("250", None, 1 << 40)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"type": "ray"}, "HOST:PORT"),
        ({"type": "ray", "address": "auto"}, "HOST:PORT"),
        ({"type": "ray", "address": "ray://head:10001"}, "HOST:PORT"),
        ({"type": "ray", "address": "head:6379", "pass_env": ["PYTHONPATH"]}, "runtime-env"),
        (
            {"type": "ray", "address": "head:6379", "runtime_env": {"env_vars": {"RAY_X": "0"}}},
            "has to be started with",
        ),
        ({"address": "head:6379"}, "without --env.cluster.type ray"),
    ],
)
def test_a_cluster_is_named_or_there_is_none(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ClusterConfig.model_validate(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"cap": {"tokens": 10}}, "counted by one process")],
)
def test_what_one_process_must_do_is_refused_on_a_cluster(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        OpenCodeEnvConfig.model_validate({"cluster": {"type": "ray", "address": "head:1"}, **options})


def test_a_saved_configuration_without_a_cluster_is_read_again() -> None:
    saved = OpenCodeEnvConfig().model_dump(mode="json")
    assert OpenCodeEnvConfig.model_validate(saved).cluster == ClusterConfig()


async def test_another_release_is_refused_before_the_rest_of_its_order_is_read() -> None:
    class OfRay(Worker):
        async def begin(self, asked: dict[str, Any]) -> None:
            raise KeyError("sandbox_memory")

    answer = json.loads(await OfRay().start(json.dumps({"versions": {"verifiers": "0.1"}}).encode()))
    assert re.fullmatch(r"ClusterError: it has verifiers .* instead of 0\.1", answer["refused"])

"""What becomes of rollouts on a cluster when nodes, workers, the head or the driver fail: real Ray nodes, each in a
network of its own, with Ray's token authentication.

In every way to fail: no score comes from what was lost, its next try is another node's, the others' rollouts go on, and
no agent, sandbox or worker is left.
"""

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opencode_env.samples import load_samples
from opencode_env.scripted_model import Reply, SamplesPolicy, ScriptPolicy
from opencode_env.scripted_model.policy import ChatRequest

from examples.cluster.nodes import RAY
from tests.support.held_model import HeldModel
from tests.support.ray_nodes import RayNode, RayNodes, ray_nodes
from tests.support.replies import bash, python
from tests.support.served_env import served
from tests.support.sizes import WHOLE, size
from tests.support.user_home import FinishedEvaluation, RunningEvaluation, UserHome
from tests.support.waiting import cancelled, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

SAMPLES = ["arithmetic-orders", "pig-latin", "cone-volume", "quadratic-roots", "write-roman", "csv-report"]
SAMPLES += ["fix-median", "count-errors"]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@pytest.fixture(scope="module")
def nodes(light_opencode: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """A head and two nodes, each with room for one worker."""
    with ray_nodes(tmp_path_factory.mktemp("nodes"), 2, variables=TOKEN) as made:
        yield made


@asynccontextmanager
async def playing(
    home: UserHome, nodes: RayNodes, model: HeldModel, rollouts: int, *options: str, held: int = 0
) -> AsyncIterator[RunningEvaluation]:
    """A run of so many samples, two of which a worker plays, once all of them, or so many, wait for the model."""
    cluster = ["--env.cluster.type", "ray", "--env.cluster.address", nodes.address, "--env.cluster.per-worker", "2"]
    arguments = [
        "opencode-env",
        "--select.include.ids",
        json.dumps(SAMPLES[:rollouts]),
        "-c",
        "4",
        *cluster,
        *options,
    ]
    async with home.running("run", model.base_url, *arguments, env=nodes.variables) as evaluation:
        await until(lambda: len(model.held) == (held or rollouts) or evaluation.process.poll() is not None)
        assert evaluation.process.poll() is None, evaluation.log
        yield evaluation


def held(nodes: RayNodes) -> HeldModel:
    """A model that the nodes reach, and that answers once it is released."""
    return HeldModel(SamplesPolicy(1.0), host=nodes.host)


async def nothing_runs(home: UserHome, nodes: RayNodes) -> None:
    """No worker, agent or sandbox of any node, and no driver; files are another promise."""
    await until(lambda: not nodes.playing and not home.processes())


async def kill_worker(node: RayNode) -> None:
    (worker,) = node.workers
    os.kill(worker, signal.SIGKILL)


async def kill_raylet(node: RayNode) -> None:
    node.kill("raylet/raylet ")


async def cut_off(node: RayNode) -> None:
    node.cut_off()


LOSSES = {"raylet": kill_raylet, "worker": kill_worker, "network": cut_off}


def scored_again(finished: FinishedEvaluation, node: RayNode) -> None:
    """All samples are solved, by one trace each; two of them after a try that the node lost."""
    lost = 0
    for sample in SAMPLES[:4]:
        episode = finished.episode(sample)
        assert [trace.reward for trace in episode.traces] == [1.0]
        assert episode.traces[0].info["agent"]["exit_code"] == 0
        for error in episode.errors:
            assert error.type == "NodeLostError"
            assert node.address in error.message
        lost += len(episode.errors)
    assert lost == 2


whole = pytest.mark.skipif(not WHOLE, reason="played in make test-whole")


@pytest.mark.parametrize("loss", list(LOSSES) if WHOLE else ["raylet"])
@pytest.mark.parametrize("repeat", range(size(1, 3)))
async def test_what_a_lost_node_played_is_played_again_elsewhere_and_the_others_go_on(
    home: UserHome, nodes: RayNodes, loss: str, repeat: int
) -> None:
    node = nodes.nodes[repeat % 2]
    async with held(nodes) as model, playing(home, nodes, model, 4, "--env.retries.max-retries", "1") as evaluation:
        assert [len(each.workers) for each in nodes.nodes] == [1, 1]
        await LOSSES[loss](node)
        if loss != "network":  # whoever is cut off does not know
            await until(lambda: not node.workers and not node.playing)
        model.released.set()
        finished = await evaluation.finish()
    assert finished.exit_code == 0, finished.log
    scored_again(finished, node)
    assert re.search(r"all 4 tasks +4 +0 +1.000", finished.log)  # the table has the last try's end
    if loss == "network":
        node.joined_again()
    await nothing_runs(home, nodes)
    if loss != "worker":
        node.restart()


PROBE = """
import os, socket
reached = [name for name in os.environ if name.startswith("RAY")]
for host, port in {places}:
    try:
        socket.create_connection((host, port), 5).close()
        reached.append((host, port))
    except OSError:
        pass
print("reached:", reached)
"""


async def test_no_sandbox_reaches_a_port_of_ray_and_a_killed_driver_leaves_nothing(
    home: UserHome, nodes: RayNodes
) -> None:
    node = nodes.nodes[0]
    own = [(host, port) for port in node.listening for host in ("127.0.0.1", node.address)]
    probe = PROBE.format(places=own + [(nodes.host, port) for port in nodes.head.listening])
    outside = subprocess.run([*node.enter, sys.executable, "-S", "-c", probe], capture_output=True, text=True)
    assert str((nodes.host, nodes.port)) in outside.stdout, outside  # so there is something to reach
    assert node.address in outside.stdout
    first = ScriptPolicy.of(python(probe))
    model = HeldModel(first, lambda request: request.body.messages[-1].role == "tool", host=nodes.host)
    options = ["--env.cluster.resources", json.dumps({node.name: 1})]
    async with model, playing(home, nodes, model, 2, *options) as evaluation:
        assert [str(request.body.messages[-1].content).strip() for request in model.held] == ["reached: []"] * 2
        # What a lost worker left in files is swept by the node's next.
        assert len(node.home.sandboxes()) == 2
        evaluation.process.send_signal(signal.SIGKILL)
        await evaluation.finish()
        await nothing_runs(home, nodes)


@whole
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("repeat", range(size(1, 2)))
async def test_an_interrupted_driver_cleans_up_on_every_node(
    home: UserHome, nodes: RayNodes, number: int, repeat: int
) -> None:
    async with held(nodes) as model, playing(home, nodes, model, 4) as evaluation:
        evaluation.process.send_signal(number)
        finished = await evaluation.finish()
    assert finished.exit_code == 130, finished.log
    assert finished.episodes == []
    assert not nodes.sandboxes  # in good order, and not by the end of what held them
    await nothing_runs(home, nodes)


async def test_a_driver_without_the_token_is_refused(home: UserHome, nodes: RayNodes) -> None:
    cluster = ["--env.cluster.type", "ray", "--env.cluster.address", nodes.address]
    async with held(nodes) as model:
        wrong = [{**TOKEN, "RAY_AUTH_TOKEN": "0" * 64}, {"RAY_AUTH_MODE": "disabled"}]
        for given in wrong[: size(1, 2)]:
            finished = await home.run(
                given["RAY_AUTH_MODE"], model.base_url, "opencode-env", "-n", "1", *cluster, env=given
            )
            assert finished.exit_code != 0
            assert f"no Ray cluster can be joined at {nodes.address}" in finished.log
    assert not nodes.playing


@whole
@pytest.mark.parametrize(
    "wrong", [{"py_executable": "/no/such/python"}, {"working_dir": "https://127.0.0.1:9/none.zip"}]
)
async def test_a_node_that_cannot_start_a_worker_ends_the_run(
    home: UserHome, nodes: RayNodes, wrong: dict[str, str]
) -> None:
    options = ["--env.cluster.type", "ray", "--env.cluster.address", nodes.address, "--env.cluster.start-timeout", "60"]
    options += ["--env.cluster.runtime-env", json.dumps(wrong), "--env.retries.max-retries", "1"]
    async with held(nodes) as model:
        finished = await home.run("run", model.base_url, "opencode-env", "-n", "2", *options, env=nodes.variables)
    assert finished.exit_code != 0
    assert "a worker cannot be started" in finished.log or "no worker was ready" in finished.log, finished.log
    assert finished.episodes == []
    await nothing_runs(home, nodes)


@whole
@pytest.mark.parametrize("what", ["gcs/gcs_server", ""])
async def test_a_lost_head_ends_the_run_without_a_score(home: UserHome, tmp_path: Path, what: str) -> None:
    # Ray's own programs, the driver's part among them, end themselves so long after they last heard of the head.
    variables = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}
    with ray_nodes(tmp_path / "nodes", 2, variables=variables) as nodes:
        async with held(nodes) as model, playing(home, nodes, model, 4, "--env.retries.max-retries", "1") as evaluation:
            nodes.head.kill(what)
            finished = await evaluation.finish()
        assert finished.exit_code != 0, finished.log
        assert [trace for episode in finished.episodes for trace in episode.traces] == []
        await nothing_runs(home, nodes)


@whole
async def test_a_cancelled_rollout_ends_on_its_node_and_the_others_go_on(home: UserHome, nodes: RayNodes) -> None:
    cluster = {"type": "ray", "address": nodes.address, "per_worker": 2}
    fields = {"taskset": {"id": "opencode-env"}, "cluster": cluster}
    async with held(nodes) as model, served(home, fields, env=nodes.variables) as server:
        kept, dropped = (asyncio.ensure_future(server.run(sample, model, "m")) for sample in SAMPLES[:2])
        await until(lambda: len(model.held) == 2)
        assert len(nodes.sandboxes) == 2
        await cancelled(dropped)
        await until(lambda: len(nodes.sandboxes) == 1)
        assert model.active == 1
        model.released.set()
        episode = await kept
        assert [trace.reward for trace in episode.traces] == [1.0]
        again = await server.run(SAMPLES[1], model, "m")
        assert [trace.reward for trace in again.traces] == [1.0]
    await nothing_runs(home, nodes)


GREEDY = "held = []\nwhile True:\n    held.append(bytearray(16 << 20))"
SWARM = """
import os, time
for _ in range(500):
    if os.fork() == 0:
        held = bytearray(24 << 20)
        time.sleep(20)
        os._exit(0)
for _ in range(500):
    os.wait()
"""


# Above what Ray's monitor allows (95 %), and below what the kernel would end it for.
HOARD = """
import time
def read(name):
    return open("/sys/fs/cgroup/memory/memory." + name).read()
held = []
while True:
    idle = dict(line.split() for line in read("stat").splitlines())["total_inactive_file"]
    if int(read("usage_in_bytes")) - int(idle) < 0.97 * int(read("limit_in_bytes")):
        held.append(bytearray(8 << 20))
    else:
        time.sleep(0.1)
"""
(QUESTION,) = [sample.question for sample in load_samples() if sample.id == SAMPLES[0]]


def is_greedy(request: ChatRequest) -> bool:
    """Whether it is the first sample's agent that asks."""
    return QUESTION in request.prompt


class GreedyAndOthers:
    """Solves the samples, but for the first, whose agent takes all memory that it gets, and then is done."""

    def __init__(self, program: str) -> None:
        self.samples, self.greedy = (
            SamplesPolicy(1.0),
            ScriptPolicy.of(bash(f"python3 -c '{program}'; true"), Reply(text="done")),
        )

    def __call__(self, request: ChatRequest, /) -> Reply:
        return (self.greedy if is_greedy(request) else self.samples)(request)


LIMITED = ["--env.sandbox.max-memory", "256MiB", "--env.cluster.memory", "2GiB"]
MONITOR = {"RAY_memory_monitor_refresh_ms": "250"}


@whole
@pytest.mark.parametrize("program", [GREEDY, SWARM], ids=["one", "many"])
@pytest.mark.parametrize("monitor", [True, False])
async def test_an_agent_that_takes_all_memory_gets_neither_a_try_nor_its_neighbours(
    home: UserHome, tmp_path: Path, program: str, monitor: bool
) -> None:
    with ray_nodes(tmp_path / "nodes", 1, memory=3 << 30, variables=MONITOR if monitor else {}) as nodes:
        model = HeldModel(GreedyAndOthers(program), lambda request: not is_greedy(request), host=nodes.host)
        # With the monitor off nothing but the node's own memory ends what the agent takes.
        options = ["--env.retries.max-retries", "1", *(LIMITED if monitor else [])]
        async with model, playing(home, nodes, model, 2, *options, held=1) as evaluation:
            (worker,) = nodes.nodes[0].workers
            await until(lambda: f": task={SAMPLES[0]} " in evaluation.log or evaluation.process.poll() is not None)
            model.released.set()
            finished = await evaluation.finish()
            assert f"process {worker}," in finished.log
    assert finished.exit_code == 0, finished.log
    assert [episode.errors for episode in finished.episodes] == [[], []]
    greedy, other = (finished.trace(sample) for sample in SAMPLES[:2])
    assert (greedy.reward, other.reward) == (0.0, 1.0)
    assert finished.log.count("a worker is ready") == 1


@whole
async def test_a_worker_that_ray_ends_for_memory_is_not_tried_again(home: UserHome, tmp_path: Path) -> None:
    with ray_nodes(tmp_path / "nodes", 2, memory=3 << 30, variables=MONITOR) as nodes:
        node = nodes.nodes[0]
        options = [*LIMITED, "--env.retries.max-retries", "1"]
        async with held(nodes) as model, playing(home, nodes, model, 4, *options) as run:
            # Whatever else a node runs takes its memory; Ray ends workers for it.
            with subprocess.Popen([*node.enter, sys.executable, "-S", "-c", HOARD], stdout=subprocess.PIPE) as hoard:
                await until(lambda: not node.workers)
                hoard.kill()
            model.released.set()
            finished = await run.finish()
        lost = [episode for episode in finished.episodes if episode.errors]
        assert len(lost) == 2
        for episode in lost:
            (error,) = episode.errors
            assert error.type == "NodeMemoryError"
            assert node.address in error.message
            assert list(episode.traces) == []
        assert [trace.reward for e in finished.episodes if not e.errors for trace in e.traces] == [1.0] * 2
        await until(lambda: not nodes.playing)


@whole
async def test_a_drained_node_finishes_what_it_plays_and_gets_nothing_new(home: UserHome, nodes: RayNodes) -> None:
    node, other = nodes.nodes
    async with held(nodes) as model, playing(home, nodes, model, 8, held=4) as evaluation:
        (drained,) = re.findall(rf"on node {node.address} .*node id (\w+)", evaluation.log)
        argv = [str(RAY), "drain-node", f"--address={nodes.address}", f"--node-id={drained}", "--reason-message=x"]
        argv += ["--reason=DRAIN_NODE_REASON_PREEMPTION"]
        environment = home.environment(nodes.variables)
        await asyncio.to_thread(subprocess.run, argv, check=True, env=environment)
        await until(lambda: "its node is drained" in evaluation.log)
        model.released.set()
        finished = await evaluation.finish()
    assert finished.exit_code == 0, finished.log
    traces = [trace for episode in finished.episodes for trace in episode.traces]
    assert [trace.reward for trace in traces] == [1.0] * 8
    played = [trace.info["agent"]["node"] for trace in traces]
    assert (played.count(node.address), played.count(other.address)) == (2, 6)
    await nothing_runs(home, nodes)
    node.restart()

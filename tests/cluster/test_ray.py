"""`vf-eval` on a real Ray node: a killed worker and its next try, ends that leave nothing, a head that is not there."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, SamplesPolicy, ScriptedModel
from opencode_env.scripted_model.policy import ChatRequest

from tests.support.replies import fault
from tests.support.user_home import UserHome, closed_port
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

SAMPLES = ["arithmetic-orders", "pig-latin"]


class SilentAtFirst:
    """Solves the samples, but never answers a call that comes while `silent`."""

    def __init__(self) -> None:
        self.samples, self.silent = SamplesPolicy(1.0), True

    def __call__(self, request: ChatRequest, /) -> Reply:
        return Reply(faults=fault("hang")) if self.silent else self.samples(request)


@asynccontextmanager
async def ray_node(home: UserHome) -> AsyncIterator[str]:
    """The address of a head of this home, without Ray's memory monitor; it has ended afterwards."""
    address = f"127.0.0.1:{closed_port()}"
    argv = [str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={address.rpartition(':')[2]}"]
    argv += ["--num-cpus=2", "--include-dashboard=false", "--object-store-memory=100000000", "--block"]
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets are short
    argv += [f"--temp-dir={folder}", "--disable-usage-stats"]
    log = home.root / "ray.log"
    variables = home.environment({"RAY_memory_monitor_refresh_ms": "0"})
    with log.open("wb") as out:
        node = await asyncio.create_subprocess_exec(*argv, stdout=out, stderr=out, env=variables, cwd=home.work)
    try:
        await until(lambda: "Ray runtime started" in log.read_text() or node.returncode is not None)
        assert node.returncode is None, log.read_text()
        yield address
    finally:
        if node.returncode is None:
            node.terminate()
        await node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def workers(home: UserHome) -> list[int]:
    return [pid for pid, command in home.processes().items() if command.startswith("ray::RayWorker")]


async def test_a_killed_worker_is_an_error_and_the_next_try_is_scored_by_another(home: UserHome) -> None:
    policy = SilentAtFirst()
    async with ScriptedModel(policy) as model, ray_node(home) as address:
        options = ["--select.include.ids", json.dumps(SAMPLES), "--env.retries.max-retries", "1"]
        options += ["--env.cluster.type", "ray", "--env.cluster.address", address, "-c", "2"]
        async with home.running("run", model.base_url, "opencode-env", *options) as evaluation:
            await until(lambda: model.active == 2 or evaluation.process.poll() is not None)
            (killed,) = workers(home)
            policy.silent = False
            os.kill(killed, signal.SIGKILL)
            finished = await evaluation.finish()
        assert finished.exit_code == 0, finished.log
        for sample in SAMPLES:
            episode = finished.episode(sample)
            (error,) = episode.errors
            assert error.type == "NodeLostError"
            assert f"process {killed}" in error.message
            (trace,) = episode.traces
            assert trace.reward == 1.0
            assert trace.info["agent"]["exit_code"] == 0
        assert workers(home) == []
        assert home.sandboxes() == []


async def test_a_terminated_driver_leaves_no_worker_and_no_sandbox(home: UserHome) -> None:
    async with ScriptedModel(SilentAtFirst()) as model, ray_node(home) as address:
        options = ["--select.include.ids", json.dumps(SAMPLES[:1])]
        options += ["--env.cluster.type", "ray", "--env.cluster.address", address]
        async with home.running("run", model.base_url, "opencode-env", *options) as evaluation:
            await until(lambda: model.active == 1 or evaluation.process.poll() is not None)
            assert len(workers(home)) == 1
            evaluation.process.send_signal(signal.SIGTERM)
            finished = await evaluation.finish()
        assert finished.exit_code != -signal.SIGABRT, finished.log
        assert home.sandboxes() == []  # ended in good order, and not by the end of what held them
        await until(lambda: not workers(home) and not any("opencode" in one for one in home.processes().values()))


async def test_a_cluster_that_nobody_can_reach_ends_the_run(home: UserHome) -> None:
    async with ScriptedModel(SamplesPolicy(1.0)) as model:
        address = f"127.0.0.1:{closed_port()}"
        options = ["--env.cluster.type", "ray", "--env.cluster.address", address, "-n", "1"]
        finished = await home.run("run", model.base_url, "opencode-env", *options)
    assert finished.exit_code != 0
    assert f"no Ray cluster can be joined at {address}" in finished.log
    assert finished.episodes == []

"""`vf-eval` on a real Ray node: a killed worker and its next try, ends that leave nothing, a head that is not there."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, SamplesPolicy, ScriptedModel
from opencode_env.scripted_model.policy import ChatRequest

from examples.cluster.nodes import AT_ONCE, RAY, SLOW, STARTED, TRIES
from tests.support.replies import fault
from tests.support.served_env import served
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
async def ray_node(home: UserHome, *more: str) -> AsyncIterator[str]:
    """The address of a head of this home, without Ray's memory monitor; it has ended afterwards."""
    address = f"127.0.0.1:{closed_port()}"
    argv = [str(RAY), "start", "--head", f"--port={address.rpartition(':')[2]}"]
    argv += [*more, "--num-cpus=2", "--include-dashboard=false", "--object-store-memory=100000000", "--block"]
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets are short
    argv += [f"--temp-dir={folder}", "--disable-usage-stats"]
    log = home.root / "ray.log"
    variables = home.environment({"RAY_memory_monitor_refresh_ms": "0", **AT_ONCE})
    for _ in range(TRIES):  # in 30 s each, which a busy machine exceeds
        with log.open("wb") as out:
            node = await asyncio.create_subprocess_exec(*argv, stdout=out, stderr=out, env=variables, cwd=home.work)
        await until(lambda: STARTED in log.read_text() or node.returncode is not None)  # noqa: B023 - at once
        if node.returncode is None or SLOW not in log.read_text():
            break
    try:
        assert node.returncode is None, log.read_text()
        yield address
    finally:
        if node.returncode is None:
            node.terminate()
        await node.wait()
        shutil.rmtree(folder, ignore_errors=True)


OF_ONE_RUN = {"start", "end", "timestamp", "duration", "rollout_seconds", "id", "tool_call_id", "session_id", "run"}
OF_ONE_RUN |= {"log_tail", "check", "node"}
"""Fields of a record with times, ids and places."""


def timeless(value: Any) -> Any:
    """A record without what no two runs have in common."""
    if isinstance(value, dict):
        return {name: timeless(inner) for name, inner in value.items() if name not in OF_ONE_RUN}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def server_log(home: UserHome) -> str:
    return (home.root / "server.log").read_text()


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
        await until(lambda: workers(home) == [])
        assert home.sandboxes() == []


async def test_a_worker_that_is_lost_while_it_plays_nothing_costs_no_rollout_a_try(home: UserHome) -> None:
    async with ScriptedModel(SamplesPolicy(1.0)) as model, ray_node(home) as address:
        fields = {"taskset": {"id": "opencode-env"}, "cluster": {"type": "ray", "address": address}}
        async with served(home, fields, workers=1) as server:
            played = [await server.run(SAMPLES[0], model, "m")]
            (idle,) = workers(home)
            os.kill(idle, signal.SIGKILL)
            await until(lambda: f"process {idle}" in (lost := server_log(home)) and "it was lost" in lost)
            played.append(await server.run(SAMPLES[1], model, "m"))
    for episode in played:
        assert episode.errors == []
        assert [trace.reward for trace in episode.traces] == [1.0]


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


async def test_what_a_worker_asks_of_its_node_is_met_or_said(home: UserHome) -> None:
    """A start that cannot be ends in time, names the cause, and keeps no other from starting."""
    met = {"labels": {"zone": "a"}, "resources": {"disk": 0.5}, "runtime_env": {"env_vars": {"A_SETTING": "set"}}}
    asked: dict[str, tuple[dict[str, Any], ...]] = {
        'no worker was ready within 5 s .*"zone": "b"': ({"labels": {"zone": "b"}, "start_timeout": 5},),
        'no worker was ready within 5 s .*"disk": 2': ({"resources": {"disk": 2}, "start_timeout": 5},),
        "no worker was ready within 5 s .*no-such-python": (
            {"runtime_env": {"py_executable": "/no-such-python"}, "start_timeout": 5},
        ),
        "RuntimeEnvSetupError: .*(conda|no-such-environment)": ({"runtime_env": {"conda": "no-such-environment"}},),
        "/no-such-folder": ({"runtime_env": {"working_dir": "/no-such-folder"}},),
        f'"A_KEY": "secret", "A_SETTING": "set", "MATHVERDICT_WORKERS": "2", "cwd": "{home.work}"': (met,),
    }
    program = Path(__file__).parents[1] / "support" / "plugins" / "telling_env.py"
    async with ray_node(home, "--labels=zone=a", '--resources={"disk":1}') as address:
        options = json.dumps([option for several in asked.values() for option in several])
        telling = await asyncio.create_subprocess_exec(
            *(sys.executable, str(program), address, options),
            stdout=subprocess.PIPE,
            env=home.environment(),
            cwd=home.work,
        )
        out, _ = await telling.communicate()
        said = [json.loads(line) for line in out.decode().splitlines() if line.startswith('"')]
        await until(lambda: workers(home) == [])
    assert len(said) == len(asked), out
    for told, words in zip(said, asked, strict=True):
        assert re.search(words, told), told


async def test_a_run_on_a_cluster_is_a_local_one_but_for_times_and_places(home: UserHome) -> None:
    """Its traces and its table are, with one more row, and a key reaches the endpoint without being named again."""
    many = [*SAMPLES, "csv-report", "count-errors"]
    options = ["--select.include.ids", json.dumps(many), "-c", "4", "--client.api-key-var", "A_KEY"]
    async with ScriptedModel(SamplesPolicy(1.0)) as model, ray_node(home) as address:
        on = ["--env.cluster.type", "ray", "--env.cluster.address", address]
        variables = home.environment({"A_KEY": "secret"})
        local = await home.run("local", model.base_url, "opencode-env", *options, env=variables)
        played = len(model.requests)
        far = await home.run("far", model.base_url, "opencode-env", *options, *on, env=variables)
        keys = {request.headers["authorization"] for request in model.requests[played:]}
    assert keys == {"Bearer secret"}
    for name in many:
        here, there = (run.episode(name).model_dump(mode="json") for run in (local, far))
        assert timeless(there) == timeless(here)
        assert there["ok"]
        assert here["task"]["data"]["id"] == there["task"]["data"]["id"] == name
    assert re.search(r"^all 4 tasks +4 +0 +1\.000.*\nnode \S+ +4 +0 +1\.000", far.log, re.M), far.log
    assert "\nnode" not in local.log

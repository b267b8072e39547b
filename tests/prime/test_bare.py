"""Whole rollouts in sandboxes of an image that holds nothing of ours: the real packages come in by themselves."""

import asyncio
import json
from pathlib import Path

import pytest
from opencode_env.samples import SAMPLES_PATH
from opencode_env.scripted_model import SamplesPolicy, ScriptedModel

from tests.support.package_mirror import package_mirror
from tests.support.places import options_of, own_url
from tests.support.prime_api import PrimeApi
from tests.support.rows import write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

STAGES = {
    "download": {"check", "download", "unpack", "verify"},
    "upload": {"check", "wait", "upload", "verify", "unpack"},
}
PACKED_BYTES = (55e6, 70e6)
PLACE = "/tmp/programs"
"""A directory that a sandbox of the server may write."""


def test_bare_sandboxes_get_opencode_and_the_trace_says_how_and_what_it_cost(tmp_path: Path) -> None:
    rows = {row["id"]: row for row in map(json.loads, SAMPLES_PATH.read_text().splitlines())}
    dataset = write_rows(tmp_path / "samples.jsonl", [rows["arithmetic-orders"]])

    async def play(way: str, model: str, mirror: str, api: PrimeApi) -> FinishedEvaluation:
        harness = ["--env.agent.harness.install", way, "--env.agent.harness.asset-dir", PLACE]
        seat = ["--env.agent.runtime.type", "prime", *harness, "--env.agent.harness.mirror", mirror]
        (tmp_path / way).mkdir()
        arguments = ["opencode-env", "--env.taskset.dataset", str(dataset), *seat, *options_of(own_url())]
        return await UserHome(tmp_path / way).run(way, model, *arguments, env=api.environment)

    async def run() -> list[FinishedEvaluation]:
        with package_mirror() as mirror:
            async with PrimeApi() as api, ScriptedModel(SamplesPolicy(1.0)) as model:
                return await asyncio.gather(*(play(way, model.base_url, mirror, api) for way in STAGES))

    for way, finished in zip(STAGES, asyncio.run(run()), strict=True):
        assert finished.exit_code == 0, finished.log
        ((trace,),) = (episode.traces for episode in finished.episodes)
        assert (trace.ok, trace.reward) == (True, 1.0), trace.errors
        install = trace.info["agent"]["install"]
        assert install["way"] == way
        assert PACKED_BYTES[0] < install["bytes"] < PACKED_BYTES[1]
        assert set(install["seconds"]) == STAGES[way]

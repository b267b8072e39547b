"""`opencode-rlm` behind verifiers' own env server, as prime-rl talks to it: the sub trace crosses the wire."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from opencode_env.scripted_model import ScriptedModel
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.serve import EnvClient, env_config_data
from verifiers.v1.types import SamplingConfig
from verifiers.v1.utils.loaders import load_taskset, resolve_env_config

import tests.env
from tests.rlm.episodes import MAIN_MODEL, SUB_MODEL
from tests.rlm.needle_policies import reader, recursive
from tests.support.user_home import UserHome, closed_port

pytestmark = [pytest.mark.opencode, pytest.mark.slow]

PROGRAM = Path(tests.env.__file__).with_name("serve_program.py")


async def test_an_episode_of_a_served_environment_brings_its_sub_trace(tmp_path: Path) -> None:
    config = resolve_env_config(
        {"taskset": {"id": "opencode-rlm"}, "sub_model": SUB_MODEL, "include_sub_llm_in_trajectory": True}
    )
    home = UserHome(tmp_path)
    saved, address = home.root / "config.json", f"tcp://127.0.0.1:{closed_port()}"
    saved.write_text(json.dumps(env_config_data(config)))
    task = next(row for row in load_taskset(config.taskset) if row.data.id == "letters-unwell")
    async with ScriptedModel(lambda r: reader(r) if r.model == SUB_MODEL else recursive(r)) as model:
        argv = [sys.executable, str(PROGRAM), str(saved), address]
        process = await asyncio.create_subprocess_exec(*argv, cwd=home.work, env=home.environment())
        client = EnvClient(address)
        try:
            await client.wait_for_server_startup(timeout=60, interval=0.3)
            endpoint = EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
            data = json.loads(json.dumps(task.data.model_dump(mode="json")))
            episode = await client.run(endpoint, MAIN_MODEL, SamplingConfig(), data)
        finally:
            await client.close()
            process.terminate()
            await process.wait()
    assert episode.ok
    main, sub = episode.traces
    assert (main.agent.name, sub.agent.name) == ("agent", "sub")
    assert (main.agent.trainable, sub.agent.trainable) == (True, True)
    assert main.reward == sub.reward == 1.0
    assert sub.num_branches == 40
    assert main.metrics["sub_llm_turns"] == 40
    assert (main.metrics["sub_llm_max_parallel"] or 0) > 1

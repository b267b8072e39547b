"""Processes of an agent that outran their end: everything in the sandbox ends with them, and the rollout is a 0."""

import shutil
from pathlib import Path

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from rollout_sandbox.confined import bubblewrap
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig, ModelContext

from tests.support.replies import bash
from tests.support.rows import write_rows

SLEEPS = "setsid sleep 1000 >/dev/null 2>&1 &"
ROW = {"id": "one", "question": "What is it?", "setup": SLEEPS, "verify": ["grep -qx 42 answer.txt"]}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Process 1 takes whatever is not gone when it looks first for something that outruns it.

    What really does takes both processors for seconds (`test_limits.py` tries it), and not every time.
    """
    here = tmp_path / "sandbox"
    shutil.copytree(bubblewrap.HERE, here, ignore=shutil.ignore_patterns("__pycache__"))
    ends = here / "supervisor" / "processes.py"
    text = ends.read_text()
    for line, instead in (("OUTRUN_AFTER_S = 5.0", "OUTRUN_AFTER_S = -1.0"), ("first = left if", "first = set() if")):
        assert text.count(line) == 1
        text = text.replace(line, instead)
    ends.write_text(text)
    for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        path.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "HERE", here)


@pytest.mark.usefixtures("light_opencode", "impatient")
async def test_a_rollout_whose_processes_survive_the_fence_is_a_zero_with_its_metric(tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "rows.jsonl", [ROW])
    config = OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env", "dataset": str(dataset)}})
    async with ScriptedModel(ScriptPolicy.of(bash(f"{SLEEPS} echo 42 >answer.txt"), Reply(text="Done."))) as model:
        client = EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        context = ModelContext(model="m", client=client, sampling=SamplingConfig())
        env = OpenCodeEnv(config)
        async with env.serving():
            (slot,) = [slot for row in env.taskset for slot in env.slots(row)]
            (trace,) = (await env.run_slot(slot, context)).traces
    assert trace.ok, trace.errors
    assert trace.metrics["agent_survived"] == 1.0
    assert [result["exit_code"] for result in trace.info["verify"]] == [0]
    assert trace.reward == 0.0

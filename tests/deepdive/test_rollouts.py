"""`opencode-deepdive` in one evaluation: a light agent, the search server as a backend, a scripted model and judge."""

import json
import os
import sys
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from tests.deepdive.fake_web import KEY, fake_web
from tests.rubrics.judge_server import Step, judge_server
from tests.simulation.backends.surroundings import write_file
from tests.simulation.episodes import tool_results
from tests.support.replies import bash, call
from tests.support.rows import script, write_rows

pytestmark = pytest.mark.usefixtures("light_opencode")
PACKAGES = Path(__file__).parents[2] / "environments" / "opencode_tasks"
LOOK = "{ env; cat /proc/*/environ /tmp/opencode/config/opencode/* /tmp/opencode/*.json; } 2>/dev/null | tr '\\0' '\\n'"


def said(answer: str) -> Reply:
    return bash(f"echo {answer!r} > /app/answer.txt")


STEPS = {
    "right": (call("web_search", query="stones of the wall"), bash(LOOK), said("4711"), Reply(text="done")),
    "wrong": (said("4712"), Reply(text="done")),
    "reply": (Reply(text="It has 4711 stones."),),
    "unsure": (said("either 4711 or 12"), Reply(text="done")),
    "broken": (said("4711"), Reply(text="done")),
}


async def test_one_evaluation_of_several_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TEST_KEY", KEY)
    questions = {name: f"row {name}: how many stones?" for name in STEPS}
    rows = [{"id": name, "question": question, "answer": "4711"} for name, question in questions.items()]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    about = {
        questions["wrong"]: Step("It differs.\nno"),
        "either 4711 or 12": Step("yes, but it names another, too"),
        questions["broken"]: Step(status=503),
    }
    async with (
        fake_web() as fake,
        judge_server(Step("The same.\nyes"), about=about) as judge,
        ScriptedModel(ScriptPolicy(*(script(name, *steps) for name, steps in STEPS.items()))) as model,
    ):
        command = [sys.executable, "-m", "opencode_search", "--url", f"{fake.url}/search", "--allow-private"]
        server = {"backend_name_ref": "web", "orchestration_mode": "local_program", "command": command}
        shown = {"reads": [str(PACKAGES)], "env": {"SEARCH_API_KEY": "${SEARCH_TEST_KEY}"}}
        file = write_file(tmp_path / "backends.yaml", {**server, **shown})
        rubric = {"judge_client": {"base_url": judge.url, "api_key_var": "NO_KEY"}, "judge_max_retries": 0}
        task = {"rubric": {"type": "judge", **rubric}}
        taskset = {"id": "opencode-deepdive", "dataset": str(data), "task": task}
        env = load_environment(resolve_env_config({"taskset": taskset, "backends": {"file": str(file)}}))
        client = EvalClientConfig(base_url=model.base_url, api_key_var="NO_KEY")
        context = ModelContext(model="m", client=client, sampling=SamplingConfig())
        async with env.serving():
            episodes = [await env.run_slot(env.slots(task)[0], context) for task in env.taskset]
    traces = {episode.task.data.id: episode.traces[0] for episode in episodes}
    rewards = {name: trace.reward if trace.ok else None for name, trace in traces.items()}
    assert rewards == {"right": 1.0, "wrong": 0.0, "reply": 1.0, "unsure": 0.0, "broken": None}
    assert [error.type for error in traces["broken"].errors] == ["JudgeError"]
    assert traces["unsure"].info["judge"]["reason"] == "no_verdict"
    assert traces["reply"].info["judge"]["source"] == "reply"
    found, seen = tool_results(traces["right"])[:2]
    assert found.startswith("1. Wall of stones")
    assert "web" in seen
    assert KEY not in seen
    assert fake.keys == [KEY]
    assert KEY not in json.dumps([trace.model_dump(mode="json") for trace in traces.values()])
    assert os.environ["SEARCH_TEST_KEY"] == KEY

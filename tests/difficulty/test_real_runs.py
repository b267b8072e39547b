"""The whole loop on runs that `vf-eval` made: rate, resume, a second model, join, and a filtered eval.

The evals run without a sandbox (see `plugin/rate_probe.py`), against an endpoint whose replies are planned (see
`model_server.py`).
"""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from opencode_env.conformance.user_home import VF_EVAL
from opencode_env.taskset.difficulty_join import JoinOptions, join
from opencode_runs.difficulty.rate import SourceFigures, TaskFigures, figures, rate
from opencode_runs.difficulty.rated import RatedFile, recommend

from tests.difficulty.model_server import PlanServer
from tests.report.reading import packed, written
from tests.support.machine import patience
from tests.support.programs import finished

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

HERE = Path(__file__).parent
PROBE_ROWS: list[dict[str, Any]] = [
    {"id": "always", "prompt": "task=always plan=right"},
    {"id": "sometimes", "prompt": "task=sometimes plan=right,wrong,half,wrong"},
    {"id": "never", "prompt": "task=never plan=wrong"},
    {"id": "flaky", "prompt": "task=flaky plan=right,error,right,error,right,right"},
    {"id": "slow", "prompt": "task=slow plan=right,hang,right,right"},
    {"id": "scoring", "prompt": "task=scoring plan=right,hang-scoring,right,right"},
    {"id": "setup", "prompt": "task=setup plan=right", "hang_setup": True},
]
QUESTIONS: list[dict[str, Any]] = [
    {"question": "task=q-always plan=right", "answer": "right"},
    {"question": "task=q-half plan=right,wrong", "answer": "right"},
    {"question": "task=q-never plan=wrong", "answer": "right"},
    {"question": "task=q-number plan=7,8,8,7", "answer": 7},
    {"question": [{"role": "user", "content": "task=q-list plan=wrong,wrong,wrong,right"}], "answer": "right"},
]


@dataclass(frozen=True)
class Evals:
    """Runs evals below `folder`."""

    folder: Path
    server: PlanServer
    seconds: float
    """Time limit of each stage."""

    def arguments(self, name: str, *more: str, model: str = "small") -> list[str]:
        seat = "--env.agent.timeout"
        return [
            *("--env.id", "rate-probe", "--run.name", name, "-m", model, "-r", "4", "-o", str(self.folder)),
            *("--client.base-url", self.server.url, "--client.api-key-var", "NO_KEY", "--no-push", "--no-rich"),
            *(word for stage in ("rollout", "setup", "scoring") for word in (f"{seat}.{stage}", f"{self.seconds:.1f}")),
            *more,
        ]

    def probe(self, name: str, *more: str, model: str = "small") -> list[str]:
        rows = self.folder / "rows.json"
        rows.write_text(json.dumps(PROBE_ROWS))
        taskset = ("--env.taskset.id", "rate-probe", "--env.taskset.rows", str(rows))
        return self.arguments(name, *taskset, *more, model=model)

    def questions(self, name: str, dataset: Path, *more: str, model: str = "small") -> list[str]:
        rubric = "--env.taskset.task.rubric"
        return self.arguments(
            name,
            *("--env.taskset.id", "opencode-env", "--env.taskset.dataset", str(dataset)),
            *(f"{rubric}.type", "answer", f"{rubric}.answer-path", "/no-such-folder/answer.txt"),
            *more,
            model=model,
        )

    def run(self, *evals: list[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        for arguments in evals:
            done = finished([str(VF_EVAL), *arguments], self.folder, environment | {"PYTHONPATH": str(HERE / "plugin")})
            assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def evals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evals]:
    seconds = patience(3)
    server = PlanServer(hang_seconds=2 * seconds)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Evals(tmp_path_factory.mktemp("outputs"), server, seconds)
    server.shutdown()
    thread.join()
    server.server_close()


def source(*runs: Path) -> SourceFigures:
    [found] = figures(rate(list(runs))).sources
    return found


def tasks(found: SourceFigures) -> dict[str, TaskFigures]:
    return {str(row.id): row for row in found.rows}


def test_rating_counts_attempts_and_keeps_what_the_infrastructure_did_apart(evals: Evals) -> None:
    evals.run(evals.probe("small", "--env.consult", "2"), evals.probe("large", model="org/large"))
    found = source(evals.folder / "small")
    rated = tasks(found)
    assert (found.env, found.model) == ("rate-probe+rate-probe", "small")
    assert {name: row.attempts for name, row in rated.items()} == {
        "always": 4, "sometimes": 4, "never": 4, "flaky": 2, "slow": 4, "scoring": 3, "setup": 0,
    }  # fmt: skip
    assert {name: row.avg_reward for name, row in rated.items()} == {
        "always": 1.0, "sometimes": 0.375, "never": 0.0, "flaky": 1.0, "slow": 0.75, "scoring": 1.0, "setup": None,
    }  # fmt: skip
    assert (rated["flaky"].errors, rated["scoring"].errors, rated["setup"].errors) == (2, 1, 4)
    assert (rated["slow"].timed_out, rated["slow"].errors) == (1, 0)
    assert found.causes == {"setup_timeout": 4, "ProviderError": 2, "scoring_timeout": 1}
    assert rated["always"].mean_turns == 1.0
    assert rated["always"].mean_tokens == 110
    assert rated["always"].key == "probe:always"

    page = evals.folder / "page.html"
    index = written(evals.folder / "small", evals.folder / "large", page=page)
    (shown,) = index["runs"][0]["sources"]
    assert {name: shown[name] for name in ("attempts", "avg_reward", "causes")} == {
        "attempts": found.attempts, "avg_reward": found.avg_reward, "causes": found.causes,
    }  # fmt: skip
    outcomes = Counter(row["outcome"] for row in index["rows"] if row["run"] == 0)
    assert outcomes == found.causes | {"ok": 20, "timeout": 1}
    details = [packed(page, f"d{row['detail']}") for row in index["rows"]]
    assert all(trace["verifiers"] == version("verifiers") for detail in details for trace in detail["traces"])
    assert {trace["seat"] for detail in details for trace in detail["traces"]} == {"agent", "sub"}

    both = figures(rate([evals.folder / "small", evals.folder / "large"])).sources
    assert [(one.model, one.attempts) for one in both] == [("org/large", 21), ("small", 21)]


def test_a_resumed_run_counts_each_episode_once(evals: Evals) -> None:
    name = "resumed"
    # A model of its own starts every plan at its first word.
    evals.run(evals.probe(name, "--select.include.ids", '["flaky","always"]', model="resumed"))
    run = evals.folder / name
    before = tasks(source(run))["flaky"]
    assert (before.attempts, before.errors) == (2, 2)
    # The run is cut off while it writes, as a killed one is.
    file = run / "traces.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]) + lines[-1][:-50])
    assert rate([run]).runs[0].truncated_end
    evals.run(["@", str(run / "configs" / "resolved" / "eval.json"), "--resume"])
    after = tasks(source(run))
    assert {name: (row.attempts, row.errors) for name, row in after.items()} == {"always": (4, 0), "flaky": (4, 0)}


def test_a_filtered_eval_runs_exactly_the_tasks_of_the_band(evals: Evals) -> None:
    dataset = evals.folder / "questions.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    evals.run(evals.questions("all", dataset))
    output = evals.folder / "rated.parquet"
    joined = join(str(dataset), [evals.folder / "all"], output, JoinOptions())
    assert joined.matched_by_key == len(QUESTIONS)
    assert not joined.unmatched_tasks.count
    assert pq.read_table(output)["avg_reward"].to_pylist() == [1.0, 0.5, 0.0, 0.5, 0.25]

    band = recommend(RatedFile(output), group=8, probability=0.6)
    assert (band.min_avg_reward, band.max_avg_reward) == (0.25, 0.5)
    evals.run(evals.questions("band", output, *band.flags.split()))
    everything, filtered = source(evals.folder / "all"), source(evals.folder / "band")
    expected = {row.key for row in everything.rows if row.avg_reward in (0.25, 0.5)}
    assert {row.key for row in filtered.rows} == expected
    assert len(expected) == 3
    assert filtered.attempts == 12

    again, options = evals.folder / "again.parquet", JoinOptions(replace_columns=True)
    with_both = join(str(output), [evals.folder / "band"], again, options)
    assert (with_both.matched_by_key, with_both.unmatched_rows.count) == (3, 2)

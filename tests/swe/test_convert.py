"""Rows of SWE-bench from before release 5, converted with swebench 4.1.0 in an environment that `uv` makes for it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from opencode_rubrics.swe.grading import parted
from rollout_sandbox.podman import PodmanConfig

from tests.support.podman import SUITES_IMAGE, base_image
from tests.support.rows import write_rows
from tests.support.sizes import WHOLE
from tests.swe.libraries import pythons
from tests.swe.playing import environment, patching, played, tasks_of
from tests.swe.repositories import CALCULATOR, made, swebench

pytestmark = [
    pytest.mark.usefixtures("sandboxes"),
    pytest.mark.slow,
    pytest.mark.skipif(not WHOLE, reason="the packages of datasets are installed in make test-whole"),
]

CONVERT = Path(__file__).parents[2] / "scripts" / "convert_swe_bench.py"
CONDA = """mkdir -p /opt/miniconda3/bin && cat > /opt/miniconda3/bin/activate <<'END'
conda() { :; }
export PYTHONPATH=/testbed/.deps/site-packages:/testbed:${PYTHONPATH:-}
python() { python3 "$@"; }
pytest() { python3 -m pytest "$@"; }
END
"""
"""What stands for the environment of SWE-bench's images."""


@pytest.fixture
def converted(tmp_path: Path) -> list[dict[str, Any]]:
    """The new rows of three old ones, of which one is of no repository that SWE-bench knows."""
    row = {name: value for name, value in swebench(CALCULATOR).items() if name not in ("eval_script", "log_parser")}
    old = [
        {**row, "repo": "pallets/flask", "version": "2.3", "instance_id": "pallets__flask-1"},
        {**row, "repo": "chartjs/Chart.js", "version": "3.1", "instance_id": "chartjs__Chart.js-1"},
        {**row, "repo": "no/such", "instance_id": "no__such-1"},
    ]
    new = tmp_path / "new.jsonl"
    command = ["uv", "run", str(CONVERT), str(write_rows(tmp_path / "old.jsonl", old)), str(new)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    said = done.stderr
    assert "no__such-1 is left out: swebench does not know the repository no/such" in said
    assert "2 of 3 rows are converted" in said
    return [json.loads(line) for line in new.read_text().splitlines()]


@pytest.mark.podman
async def test_a_converted_row_is_scored(
    converted: list[dict[str, Any]], podman_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flask, chart = converted
    assert flask["image"] == "swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest"
    assert (flask["log_parser"], flask["eval_type"]) == ("parse_log_pytest", "pass_and_fail")
    assert chart["eval_type"] == "fail_only"
    assert parted(flask["eval_script"]) is not None
    for name, python in pythons(tmp_path).items():
        monkeypatch.setenv(name, python)
    image = base_image(SUITES_IMAGE)
    (task,) = tasks_of([{**flask, "image": image, "setup": CONDA}], tmp_path)
    env = environment(runtime=PodmanConfig(image=image))
    for script, reward in {patching(made(CALCULATOR).gold): 1.0, patching(made(CALCULATOR).half): 0.0}.items():
        trace = await played(task, script, env)
        assert (trace.reward, trace.metrics["installed_change"]) == (reward, 0.0), trace.info

"""TRL's own trainer takes a step on rollouts of our server, by the `rollout_func` of `examples/trl`, on CPU.

`TRL_STEP=1` runs it. trl needs torch, whose wheels in the registry are those for CUDA: 3 GB to download and 6 GB on
the disk, which is most of what the suite may take; that of a CPU is elsewhere.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.openenv_server import RunningServer, spoken_by
from tests.test_structure import ROOT

TRL = "1.16.0"
PROGRAM = Path(__file__).parent / "clients" / "trl_step.py"

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.opencode,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("TRL_STEP"), reason="downloads 3 GB; TRL_STEP=1 runs it"),
]


@pytest.fixture(scope="module")
def trl_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with trl beside this repository's packages, as who trains with the example has one."""
    uv = shutil.which("uv")
    assert uv is not None, "uv is not on PATH"
    place = tmp_path_factory.mktemp("trl") / "venv"
    subprocess.run([uv, "venv", "-q", "-p", "3.11", str(place)], check=True, timeout=120)
    python = place / "bin" / "python"
    members = (
        "packages/rollout_sandbox",
        "packages/mathverdict",
        "rubrics",
        "environments/opencode_env",
        "environments/opencode_openenv",
    )
    ours = [word for member in members for word in ("-e", str(ROOT / member))]
    install = [uv, "pip", "install", "-q", "--python", str(python), f"trl=={TRL}", "torch", *ours]
    subprocess.run(install, check=True, timeout=1800)
    return python


def test_trls_trainer_takes_a_step_on_our_rollouts_and_its_logprobs_agree_before_it(
    server: RunningServer, trl_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    told = spoken_by(trl_python, PROGRAM, server.url, str(tmp_path / "made"), timeout=1500)
    # Each row trains what was sampled in its rollout and nothing else, whatever came between; the failed one nothing.
    *whole, failed = sorted(told["sampled"], key=len, reverse=True)
    assert failed == []
    two_calls = [first + second for first in told["said"] for second in told["said"] if first is not second]
    assert len(told["said"]) == 6
    assert all(row in two_calls for row in whole)
    assert told["between"] > 100
    assert told["apart"] < 1e-4
    assert told["least"] < -5
    # One of three failed at its task; the rollout that the infrastructure failed is not part of their mean.
    assert sorted(told["advantages"]) == pytest.approx([-1.1547, 0.0, 0.5774, 0.5774], abs=1e-3)
    assert told["loss"] != 0
    assert told["finite"]
    assert told["moved"] > 1e-3
    print({name: value for name, value in told.items() if name not in ("sampled", "said")})

"""prime-rl's `evals` over `configs/eval/local.toml`, with the scripted model in place of an endpoint."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import tomli_w
from opencode_env.scripted_model import SamplesPolicy, ScriptedModel

from scripts.prime_rl_trial.configurations import ROOT
from scripts.prime_rl_trial.report import Report
from scripts.prime_rl_trial.sources import as_evals


async def evals(report: Report, work: Path) -> None:
    """Every sample task once, as the file says it, by the entry point `evals`."""
    document = as_evals(ROOT / "configs" / "eval" / "local.toml")
    with socket.create_server(("127.0.0.1", 0)) as free:
        document["eval"]["env_server_base_port"] = free.getsockname()[1]
    async with ScriptedModel(SamplesPolicy(1.0)) as model:
        document["eval"]["client"]["base_url"] = model.base_url
        path = work / "evals.toml"
        path.write_text(tomli_w.dumps(document))
        argv = ["evals", "@", str(path), "--output-dir", str(work / "run")]
        with (work / "evals.log").open("w") as log:
            process = await asyncio.create_subprocess_exec(*argv, cwd=work, stdout=log, stderr=log)
            code = await process.wait()
    report.holds("evals @ (configs/eval/local.toml)", code == 0, f"exit code {code}")
    found = sorted((work / "run").rglob("eval/all/traces.jsonl"))
    lines = [json.loads(line) for path in found for line in path.read_text().split("\n") if line]
    outcomes = {line["task"]["data"]["id"]: reward_of(line["traces"][0]) for line in lines}
    report.holds("its traces", bool(lines) and set(outcomes.values()) == {1.0}, outcomes)


def reward_of(trace: dict[str, Any]) -> float:
    """The weighted sum of a saved trace's rewards."""
    return sum(float(reward["score"]) * float(reward["weight"]) for reward in trace["rewards"].values())

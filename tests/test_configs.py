"""Every file under configs/ runs as its own comment says: the command parses into the real configuration classes."""

import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_rlm.env import OpenCodeRLMEnvConfig
from renderers.base import MODEL_RENDERER_MAP
from rollout_sandbox.compat import AFTER_0_4_0
from verifiers.v1.cli.eval.main import main
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.configs.serve import ServeConfig, pool_serve_kwargs
from verifiers.v1.utils.loaders import resolve_env_config

from scripts.prime_rl_trial.sources import as_evals

ROOT = Path(__file__).parent.parent
OTHER_VERSION = "podman" if AFTER_0_4_0 else "podman-custom"
"""The file that the installed verifiers cannot read: podman is spelled in two ways."""
EVAL = [path for path in sorted((ROOT / "configs" / "eval").glob("*.toml")) if path.stem != OTHER_VERSION]
RL = sorted((ROOT / "configs" / "rl").glob("*.toml"))
TRAINING = pytest.mark.parametrize("path", RL, ids=lambda path: path.stem)
SERVERS = sorted((ROOT / "configs" / "env-server").glob("*.toml"))
FILES = pytest.mark.parametrize("path", EVAL, ids=lambda path: path.stem)


def header(path: Path) -> str:
    """The comment at the top of a file."""
    lines = path.read_text().splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(line.removeprefix("#").strip() for line in lines[:end])


def command(path: Path) -> list[str]:
    """The words of the one `vf-eval` command in a file's header."""
    (found,) = re.findall(r"^uv run (vf-eval .*)$", header(path), re.MULTILINE)
    return shlex.split(found)


def test_there_are_configurations() -> None:
    assert {path.stem for path in EVAL} >= {"local", "prime", "vllm", "foreign-taskset"}
    elsewhere = {path.stem for path in (ROOT / "configs").rglob("*.toml") if path not in [*EVAL, *RL, *SERVERS]}
    assert elsewhere == {OTHER_VERSION}


@FILES
def test_a_configuration_opens_with_its_purpose_and_its_exact_command(path: Path) -> None:
    text = header(path)
    assert len(text.partition("Run:")[0].split()) > 8
    words = command(path)
    assert words[:3] == ["vf-eval", "@", str(path.relative_to(ROOT))]


@FILES
def test_the_command_of_a_configuration_is_accepted_by_vf_eval(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    words = [word.replace("YOUR-TASKSET", "opencode-env") for word in command(path)[1:]]
    monkeypatch.setattr(sys, "argv", ["vf-eval"])
    main([*words, "--dry-run", "--output-dir", str(tmp_path), "--run.name", "dry"])
    (saved,) = tmp_path.rglob("eval.json")
    config = EvalConfig.model_validate_json(saved.read_text())
    recursive = path.stem == "rlm"
    assert isinstance(resolve_env_config(config.env), OpenCodeRLMEnvConfig if recursive else OpenCodeEnvConfig)
    seats = config.env.agent_harnesses()
    assert seats["agent"].id == ("opencode-rlm" if recursive else "opencode-env")
    assert type(seats["agent"]).__name__ == ("OpenCodeRLMHarnessConfig" if recursive else "OpenCodeHarnessConfig")


def sources(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The sources of a training configuration."""
    found: list[dict[str, Any]] = document["orchestrator"]["train"]["source"]
    assert len({one["name"] for one in found}) == len(found) > 0
    return found


@TRAINING
def test_the_environment_of_a_training_configuration_is_ours(path: Path) -> None:
    """prime-rl narrows `env` in this way; its own classes are tried by `scripts/try_prime_rl.py`."""
    recursive = path.stem.startswith("rlm")
    for one in sources(tomllib.loads(path.read_text())):
        config = resolve_env_config(one["env"])
        assert isinstance(config, OpenCodeRLMEnvConfig if recursive else OpenCodeEnvConfig)
        assert config.agent_harnesses()["agent"].id == ("opencode-rlm" if recursive else "opencode-env")


@TRAINING
def test_a_training_configuration_has_what_prime_rl_asks_for(path: Path) -> None:
    document = tomllib.loads(path.read_text())
    assert header(path).splitlines()[-1] == f"uv run rl @ {path.relative_to(ROOT)}"
    assert document["trainer"]["optim"]["lr"] > 0, "prime-rl refuses a run without a table for its trainer"
    run = document["orchestrator"]
    for group in (one["group_size"] for one in sources(document)):
        assert run["batch_size"] % group == 0
        assert run["concurrency"]["max_inflight"] >= group


@TRAINING
def test_the_model_of_a_training_configuration_has_a_renderer(path: Path) -> None:
    assert tomllib.loads(path.read_text())["model"]["name"] in MODEL_RENDERER_MAP


@TRAINING
def test_no_sample_of_a_training_configuration_is_longer_than_the_trainer_keeps(path: Path) -> None:
    document = tomllib.loads(path.read_text())
    answer = document["orchestrator"]["train"]["sampling"]["max_completion_tokens"]
    for one in sources(document):
        agent = one["env"]["agent"]
        if agent["harness"].get("disable_compaction", True):
            assert agent["max_total_tokens"] + answer < document["seq_len"]
        else:  # a section ends before the window is full, and is a sample of its own
            assert agent["harness"]["context_window"] <= document["seq_len"]
            assert agent["harness"]["window_reserve"] > answer
    assert document["inference"]["vllm"]["max_model_len"] == document["seq_len"]


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.stem)
def test_an_environment_server_of_its_own_serves_what_the_sources_of_its_run_ask_for(path: Path) -> None:
    server = tomllib.loads(path.read_text())
    assert header(path).splitlines()[-1] == f"uv run env-server @ {path.relative_to(ROOT)}"
    config = ServeConfig.model_validate(server["serve"])
    run = tomllib.loads((ROOT / "configs" / "rl" / path.name).read_text())
    assert [one["env"] for one in sources(run)] == [server["env"]] * len(sources(run))
    ports = {one["serve"]["address"].rpartition(":")[2] for one in sources(run)}
    assert config.address is not None
    assert ports == {config.address.rpartition(":")[2]}
    assert pool_serve_kwargs(config.pool)["elastic"]
    share = run["orchestrator"]["concurrency"]["max_inflight"] / len(sources(run))
    assert share <= server["serve"]["pool"]["max_workers"] * server["serve"]["pool"]["multiplex"]


@FILES
def test_a_configuration_for_vf_eval_is_a_source_of_prime_rls_evals(path: Path) -> None:
    """The classes themselves are prime-rl's: `scripts/try_prime_rl.py`."""
    document, evals = tomllib.loads(path.read_text()), as_evals(path)["eval"]
    (only,) = evals["source"]
    assert only == {"name": path.stem, "env": document["env"]}
    assert evals["client"]["base_url"].startswith("http")
    assert evals["concurrency"]["min_inflight"] == evals["concurrency"]["max_inflight"] > 0
    assert evals["group_size"] == document.get("num_rollouts", 1)
    assert "max_tokens" not in evals["sampling"]

"""Every file under configs/ runs as its own comment says: the command parses into the real configuration classes."""

import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from opencode_rubrics.verifiers_versions import AFTER_0_4_0
from verifiers.v1.cli.eval.main import main
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.utils.loaders import resolve_env_config

ROOT = Path(__file__).parent.parent
OTHER_VERSION = "podman" if AFTER_0_4_0 else "podman-custom"
"""The file that the installed verifiers cannot read: podman is spelled in two ways."""
EVAL = [path for path in sorted((ROOT / "configs" / "eval").glob("*.toml")) if path.stem != OTHER_VERSION]
RL = sorted((ROOT / "configs" / "rl").glob("*.toml"))
TRAINING = pytest.mark.parametrize("path", RL, ids=lambda path: path.stem)
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
    elsewhere = {path.stem for path in (ROOT / "configs").rglob("*.toml") if path not in [*EVAL, *RL]}
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
    assert type(resolve_env_config(config.env)).__name__ == (
        "OpenCodeRLMEnvConfig" if recursive else "OpenCodeEnvConfig"
    )
    seats = config.env.agent_harnesses()
    assert seats["agent"].id == ("opencode-rlm" if recursive else "opencode-env")
    assert type(seats["agent"]).__name__ == ("OpenCodeRLMHarnessConfig" if recursive else "OpenCodeHarnessConfig")


def source(document: dict[str, Any]) -> dict[str, Any]:
    """The one source of a training configuration."""
    (found,) = document["orchestrator"]["train"]["source"]
    assert isinstance(found, dict)
    return found


@TRAINING
def test_the_environment_of_a_training_configuration_is_ours(path: Path) -> None:
    """prime-rl narrows `env` in this way; its own classes are tried by `scripts/try_prime_rl.py`."""
    env = source(tomllib.loads(path.read_text()))["env"]
    recursive = path.stem == "rlm"
    config = resolve_env_config(env)
    assert type(config).__name__ == ("OpenCodeRLMEnvConfig" if recursive else "OpenCodeEnvConfig")
    assert config.agent_harnesses()["agent"].id == ("opencode-rlm" if recursive else "opencode-env")


@TRAINING
def test_a_training_configuration_has_what_prime_rl_asks_for(path: Path) -> None:
    document = tomllib.loads(path.read_text())
    assert header(path).splitlines()[-1] == f"uv run rl @ {path.relative_to(ROOT)}"
    assert document["trainer"]["optim"]["lr"] > 0, "prime-rl refuses a run without a table for its trainer"
    run, group = document["orchestrator"], source(document)["group_size"]
    assert run["batch_size"] % group == 0
    assert run["concurrency"]["max_inflight"] >= group


@TRAINING
def test_no_rollout_of_a_training_configuration_is_longer_than_the_trainer_keeps(path: Path) -> None:
    document = tomllib.loads(path.read_text())
    budget = source(document)["env"]["agent"]["max_total_tokens"]
    answer = document["orchestrator"]["train"]["sampling"]["max_completion_tokens"]
    assert budget + answer < document["seq_len"]
    assert document["inference"]["vllm"]["max_model_len"] == document["seq_len"]

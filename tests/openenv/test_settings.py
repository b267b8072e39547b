"""The server's options, what it serves under them, and what it refuses before it starts anything."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opencode_openenv.model_calls import ModelEndpoint
from opencode_openenv.result import RolloutResult
from opencode_openenv.rollout_engine import RolloutEngine
from opencode_openenv.service import RolloutService
from opencode_openenv.settings import ServerConfig
from opencode_openenv.spec import RolloutSpec

from tests.support.programs import finished, own_variables

CALL: dict[str, Any] = {"instruction": "do it", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
DEFAULT = ServerConfig()


def test_it_listens_at_the_loopback_without_a_token_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENCODE_OPENENV_TOKEN", raising=False)
    config = ServerConfig()
    assert (config.host, config.is_loopback, config.token()) == ("127.0.0.1", True, None)
    assert not ServerConfig(host="0.0.0.0").is_loopback
    assert not ServerConfig(host="a-machine.example").is_loopback
    for host in ("::1", "127.1", "[::1]", "LOCALHOST"):
        assert ServerConfig(host=host).is_loopback


def test_a_token_is_read_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENCODE_OPENENV_TOKEN", "from-the-environment")
    assert ServerConfig().token() == "from-the-environment"
    file = tmp_path / "token"
    file.write_text("from-the-file\n")
    assert ServerConfig(token_file=file).token() == "from-the-file"
    with pytest.raises(ValueError, match="cannot be read"):
        ServerConfig(token_file=tmp_path / "none").token()
    for bad in ("short", "with a space in it", "with/a/slash", "ünicode-token"):
        file.write_text(bad)
        with pytest.raises(ValueError, match="8 or more letters"):
            ServerConfig(token_file=file).token()


@pytest.mark.parametrize(
    "reachable",
    [
        {"runtime": {"type": "docker"}},
        {"runtime": {"type": "podman"}},
        {"sandbox": {"network": "host"}},
        {"sandbox": {"confine": False}},
    ],
)
def test_where_agents_may_reach_the_server_it_asks_for_a_token(
    monkeypatch: pytest.MonkeyPatch, reachable: dict[str, Any]
) -> None:
    monkeypatch.delenv("OPENCODE_OPENENV_TOKEN", raising=False)
    with pytest.raises(ValueError, match="OPENCODE_OPENENV_TOKEN"):
        ServerConfig.model_validate(reachable)
    monkeypatch.setenv("OPENCODE_OPENENV_TOKEN", "a-long-token")
    assert ServerConfig.model_validate(reachable).token() == "a-long-token"


def test_the_environment_has_the_servers_runtime_and_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_OPENENV_TOKEN", "a-long-token")
    given = {"runtime": {"type": "docker", "image": "an-image"}, "harness": {"startup_time": 7.0}}
    config: Any = ServerConfig.model_validate(given).environment()
    assert (config.agent.runtime.type, getattr(config.agent.runtime, "image", None)) == ("docker", "an-image")
    assert getattr(config.agent.harness, "startup_time", None) == 7.0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"template": "an-image"}, "local sandboxes"),
        ({"agent_timeout_s": 100_000.0}, "--max-rollout-s"),
        ({"verify": ["true"] * 60, "command_timeout_s": 600.0}, "--max-rollout-s"),
        ({"model": ""}, "no model"),
        ({"mode": "other"}, "mode must"),
        ({"api_key": ["a-secret-key"]}, "api_key must"),
        ({"token_ids": True, "renderer": "no-such-renderer"}, "no-such-renderer"),
        ({"token_ids": True, "renderer": "kimi-k2.5", "tokenizer": "some/code"}, "runs code"),
        ({"token_ids": True, "renderer": "kimi-k2.5", "tokenizer": "moonshotai/Kimi-K2.5"}, "--max-tokenizers"),
        ({"token_ids": True, "tokenizer": "one-too-many"}, "--max-tokenizers"),
    ],
)
async def test_wrong_arguments_are_refused_before_anything_starts(wrong: dict[str, Any], told: str) -> None:
    config = ServerConfig(max_tokenizers=0)
    service = RolloutService(RolloutEngine(config.environment()), config)
    with pytest.raises(ValueError, match=r"^invalid argument") as refusal:
        await service.run({**CALL, **wrong})
    assert told in str(refusal.value)
    assert "a-secret-key" not in str(refusal.value)


def test_recursive_agents_are_served_by_the_environment_that_has_them() -> None:
    config: Any = ServerConfig.model_validate(
        {"env_id": "opencode-rlm", "harness": {"startup_time": 7.0}}
    ).environment()
    harness = config.agent.harness
    assert (config.id, harness.id, harness.startup_time) == ("opencode-rlm", "opencode-rlm", 7.0)
    assert harness.disabled_tools == ["question"]
    with pytest.raises(ValueError, match="--env-id opencode-rlm"):
        ServerConfig(include_sub_llm_in_trajectory=True)


class BrokenEngine(RolloutEngine):
    """One whose rollouts fail in a way that nobody thought of."""

    async def rollout(self, spec: RolloutSpec, endpoint: ModelEndpoint) -> RolloutResult:
        raise ValueError("no such thing")


@pytest.fixture
def listening() -> Iterator[dict[str, Any]]:
    """A call whose endpoint somebody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {**CALL, "base_url": f"http://127.0.0.1:{server.getsockname()[1]}/v1"}


async def test_what_the_infrastructure_does_is_in_the_result(listening: dict[str, Any]) -> None:
    result = await RolloutService(BrokenEngine(DEFAULT.environment()), DEFAULT).run(listening)
    assert (result.reward, result.stop_condition, result.error) == (None, "error", "ValueError: no such thing")


class SilentEngine(RolloutEngine):
    """One whose rollouts do not end by themselves."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.started = asyncio.Event()

    async def rollout(self, spec: RolloutSpec, endpoint: ModelEndpoint) -> RolloutResult:
        self.started.set()
        await asyncio.Event().wait()
        raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("ends", "told"), [("the caller", "its caller is gone"), ("the server", "the server is shutting down")]
)
async def test_a_rollout_that_is_cut_off_leaves_a_line_in_the_log(
    ends: str, told: str, listening: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    engine = SilentEngine(DEFAULT.environment())
    service = RolloutService(engine, DEFAULT)
    call = asyncio.ensure_future(service.run({**listening, "task_id": "lost"}))
    await engine.started.wait()
    if ends == "the caller":
        call.cancel()
        await asyncio.wait([call])
    await service.stop()
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage().startswith("run_rollout 'lost': ended after ")
    assert record.getMessage().endswith(f" s: {told}")
    assert record.exc_info is None


@pytest.mark.usefixtures("programs")
def test_who_does_not_use_openenv_never_imports_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys\n"
        "imported_before = 'rollout_sandbox', 'mathverdict', 'opencode_', 'uvicorn'\n"
        "for name in [name for name in sys.modules if name.startswith(imported_before)]:\n"
        "    del sys.modules[name]\n"
        "import opencode_env, opencode_openenv as here\n"
        "assert here.RolloutResult and here.flat_sequence\n"
        "from opencode_env import OpenCodeEnv\n"
        "wrong = {'openenv', 'fastmcp', 'uvicorn', 'gradio'} & {name.partition('.')[0] for name in sys.modules}\n"
        "assert not wrong, wrong\n"
    )
    done = finished([sys.executable, "program.py"], tmp_path, own_variables())
    assert done.returncode == 0, done.stderr

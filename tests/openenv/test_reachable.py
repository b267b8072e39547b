"""What nobody listens for is told before a rollout starts, and what cannot be known is left to the rollout."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_openenv.model_calls import ModelEndpoint
from opencode_openenv.result import RolloutResult
from opencode_openenv.rollout_engine import RolloutEngine
from opencode_openenv.service import RolloutService
from opencode_openenv.settings import ServerConfig
from opencode_openenv.spec import RolloutSpec

from tests.support.user_home import closed_port


class CountingEngine(RolloutEngine):
    """One that only counts what it is to run."""

    started = 0

    async def rollout(self, spec: RolloutSpec, endpoint: ModelEndpoint) -> RolloutResult:
        self.started += 1
        return RolloutResult(reward=1.0)


async def served(**arguments: Any) -> tuple[RolloutResult, int]:
    """The result of a call, and how many rollouts were started for it."""
    config = ServerConfig()
    engine = CountingEngine(config.environment())
    result = await RolloutService(engine, config).run({"instruction": "do it", "model": "m", **arguments})
    return result, engine.started


def nowhere() -> str:
    """A URL at which nobody listens."""
    return f"http://127.0.0.1:{closed_port()}/v1"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


async def test_a_closed_port_starts_no_rollout() -> None:
    url = nowhere()
    result, started = await served(base_url=url)
    assert (result.reward, result.stop_condition, started) == (None, "error", 0)
    assert result.error == f"ProviderError: base_url {url} cannot be reached: connection refused"


async def test_the_servers_own_address_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_URL", nowhere())
    result, started = await served(endpoint="vllm")
    assert started == 0
    assert result.error == 'ProviderError: the server\'s own endpoint "vllm" cannot be reached: connection refused'


@pytest.mark.parametrize("host", ["no-such-host.invalid", f"{'x' * 70}.example"])
async def test_a_name_that_nobody_has_is_told(host: str) -> None:
    result, started = await served(base_url=f"http://{host}/v1")
    assert started == 0
    assert "its name is not known" in str(result.error)


async def test_an_endpoint_that_comes_back_at_once_is_waited_for() -> None:
    port = closed_port()
    call = asyncio.ensure_future(served(base_url=f"http://127.0.0.1:{port}/v1"))
    await asyncio.sleep(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port):
        result, started = await call
    assert (result.reward, started) == (1.0, 1)


async def test_behind_a_proxy_it_is_left_to_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    _, started = await served(base_url="http://no-such-host.invalid/v1")
    assert started == 1


async def test_a_tokenizer_is_looked_for_before_the_rollout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    async with ScriptedModel(ScriptPolicy.of(Reply(text="done"))) as model:
        call = {"base_url": model.base_url, "token_ids": True}
        monkeypatch.setenv("HF_ENDPOINT", nowhere())
        result, started = await served(**call, tokenizer="some/tokenizer")
        assert (result.reward, result.stop_condition, started) == (None, "error", 0)
        assert "tokenizer 'some/tokenizer' is not on the server, and the Hub cannot be reached" in str(result.error)
        assert (await served(**call, tokenizer=str(tmp_path)))[1] == 1
        assert (await served(**call, tokenizer="/no/such/directory"))[1] == 1  # told at once by whoever loads it
        assert (await served(base_url=model.base_url))[1] == 1
        snapshot = tmp_path / "cache" / "models--some--tokenizer" / "snapshots" / "c0"
        snapshot.mkdir(parents=True)
        (snapshot / "tokenizer.json").write_text("{}")
        assert (await served(**call, tokenizer="some/tokenizer"))[1] == 1
        monkeypatch.setenv("HF_ENDPOINT", model.base_url)
        assert (await served(**call, tokenizer="another/tokenizer"))[1] == 1

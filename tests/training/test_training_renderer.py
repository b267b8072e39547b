"""What cannot give traces to train on is refused at its start, by name; what may not is warned of."""

import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent.interception import training_client
from opencode_env.cli_agent.interception.training_client import renderer_abilities
from renderers import CustomRendererConfig, DefaultRendererConfig, Qwen3Renderer, Qwen3RendererConfig, RendererConfig
from verifiers.v1.clients import ModelContext, TrainClientConfig
from verifiers.v1.episode import Episode

from tests.support.families import GLM, Family, Qwen3
from tests.support.light_opencode import light_opencode_in_place
from tests.support.rows import write_rows
from tests.support.seats import MAIN_MODEL
from tests.support.token_engine import TokenEngine
from tests.training.hostile import PIXEL
from tests.training.trained import Lines, train

pytestmark = pytest.mark.usefixtures("sandboxes")


@asynccontextmanager
async def environment(directory: Path) -> AsyncIterator[OpenCodeEnv]:
    """The environment over one row."""
    rows = write_rows(directory / "rows.jsonl", [{"id": "one", "question": "What is it?", "answer": "done"}])
    env = OpenCodeEnv(OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env", "dataset": str(rows)}}))
    async with env.serving():
        yield env


async def rollout(env: OpenCodeEnv, client: TrainClientConfig) -> Episode[Any, Any, Any]:
    """One episode."""
    (slot,) = [slot for task in env.taskset for slot in env.slots(task)]
    return await env.run_slot(slot, ModelContext(model=MAIN_MODEL, client=client))


def client_of(renderer: RendererConfig | None, name: str, url: str = "http://127.0.0.1:9/v1") -> TrainClientConfig:
    return TrainClientConfig(base_url=url, api_key_var="NO_SUCH_KEY", renderer=renderer, renderer_model_name=name)


async def refusal(directory: Path, renderer: RendererConfig | None, name: str) -> str:
    """What an episode says that was refused before anything was started."""
    async with environment(directory) as env:
        episode = await rollout(env, client_of(renderer, name))
    assert episode.traces == []
    (error,) = episode.errors
    assert error.type == "EnvError"
    return error.message


@pytest.mark.parametrize("renderer", [DefaultRendererConfig(tool_parser="qwen3"), None], ids=["named", "found"])
async def test_a_renderer_that_continues_nothing_is_refused(
    tokenizer: Path, tmp_path: Path, renderer: RendererConfig | None
) -> None:
    message = await refusal(tmp_path, renderer, str(tokenizer))
    assert message.startswith(
        f"DefaultRenderer, the renderer of the training client for '{MAIN_MODEL}', cannot continue"
    )
    assert "--client.renderer.name" in message
    assert '"[orchestrator.renderer]"' in message


async def test_a_renderer_that_cannot_be_built_is_refused_with_its_cause(tokenizer: Path, tmp_path: Path) -> None:
    message = await refusal(tmp_path, Qwen3(True).renderer, str(tmp_path / "nowhere"))
    assert "the renderer of the training client" in message
    assert "cannot be built" in message
    assert "nowhere" in message


@pytest.mark.parametrize(
    ("family", "warns"),
    [(Qwen3(True), True), (Qwen3(True, "all"), False), (GLM(True), True), (GLM(False), False)],
    ids=["qwen3", "qwen3 all", "glm", "glm without thinking"],
)
async def test_a_renderer_that_starts_over_after_a_user_is_warned_of(
    tokenizer: Path, tmp_path: Path, family: Family, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    training_client._warned.clear()
    engine = TokenEngine(tokenizer, family, Lines(family, [], {}))
    with caplog.at_level(logging.WARNING, "verifiers.v1.opencode_env"), light_opencode_in_place():
        async with environment(tmp_path) as env, engine.serving() as url:
            client = client_of(family.renderer, str(tokenizer), url)
            episodes = [await rollout(env, client) for _ in range(2 if warns else 1)]
    assert all(episode.ok for episode in episodes), episodes[0].errors
    said = [record.getMessage() for record in caplog.records if "renders the whole history again" in record.message]
    assert len(said) == warns
    assert all("Set thinking_retention to all (vf-eval: --client.renderer.thinking_retention" in one for one in said)


class OneResult(Qwen3Renderer):
    """Continues behind one call of an answer only."""

    config_class = Qwen3RendererConfig

    def bridge_to_next_turn(self, prompt: Any, said: Any, messages: Any, **options: Any) -> Any:
        """None when there are several results."""
        return None if len(messages) > 1 else super().bridge_to_next_turn(prompt, said, messages, **options)


async def test_a_renderer_that_starts_over_behind_several_calls_is_warned_of(
    tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training_client._warned.clear()
    path = f"{OneResult.__module__}.{OneResult.__qualname__}"
    own = {"name": "custom", "import_path": path, "enable_thinking": False}
    with caplog.at_level(logging.WARNING, "verifiers.v1.opencode_env"):
        for config in (CustomRendererConfig.model_validate(own), Qwen3(False).renderer):
            for _ in range(2):
                ctx = ModelContext(model=MAIN_MODEL, client=client_of(config, str(tokenizer)))
                abilities = await renderer_abilities(ctx)
                assert abilities is not None
                training_client._judge(abilities, MAIN_MODEL)
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["OneResult"]
    assert "behind an answer with several calls" in caplog.records[0].getMessage()


@pytest.mark.opencode
async def test_a_task_with_a_picture_is_refused_when_the_renderer_reads_text(tokenizer: Path) -> None:
    family = Qwen3(thinks=True)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PIXEL).decode()}}
    shown = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}]
    played = await train(tokenizer, family, [], first=vf.TaskData.model_validate({"idx": 0, "prompt": shown}).prompt)
    assert played.main.last_error is not None
    assert played.main.last_error.type == "HarnessError"
    assert "reads text only" in played.main.last_error.message
    assert played.engine.asked == 0

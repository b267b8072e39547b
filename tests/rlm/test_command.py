"""The `vf-eval` command: `opencode-rlm` alone over its needles, and over another taskset."""

import asyncio
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_rlm.env import OpenCodeRLMEnv, OpenCodeRLMEnvConfig

from tests.report.reading import written
from tests.rlm.episodes import ServedRows
from tests.rlm.needle_policies import reader, reading_alone, recursive
from tests.simulation.episodes import problems, serving
from tests.support.browser import Browser
from tests.support.light_opencode import light_opencode_in_place
from tests.support.rows import probe, probe_arguments, write_rows
from tests.support.seats import SUB_MODEL
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

WINDOW = 30_000
"""Tokens that the scripted models accept: the needle files hold ten times that."""


@pytest.fixture(scope="module")
def needles(tmp_path_factory: pytest.TempPathFactory) -> tuple[FinishedEvaluation, ScriptedModel, ScriptedModel]:
    """One run over the needles, main and sub model at endpoints of their own."""
    home = UserHome(tmp_path_factory.mktemp("home"))

    async def run() -> tuple[FinishedEvaluation, ScriptedModel, ScriptedModel]:
        async with (
            ScriptedModel(recursive, context_window=WINDOW) as main,
            ScriptedModel(reader, context_window=WINDOW) as sub,
        ):
            arguments = ["opencode-rlm", "-c", "2", "--env.sub.model", SUB_MODEL]
            arguments += ["--env.sub.client.base-url", sub.base_url, "--env.sub.sampling.temperature", "0.25"]
            return await home.run("needles", main.base_url, *arguments), main, sub

    return asyncio.run(run())


def test_needles_beyond_every_window_are_found_by_recursion(
    needles: tuple[FinishedEvaluation, ScriptedModel, ScriptedModel],
) -> None:
    finished, _, _ = needles
    assert finished.exit_code == 0, finished.log[-3000:]
    rewards = {episode.task.data.id: episode.traces[0].reward for episode in finished.episodes}
    assert rewards == {"diary-animal": 1.0, "letters-unwell": 1.0, "minutes-bell": 1.0}
    for episode in finished.episodes:
        main_trace, sub_trace = episode.traces
        assert (main_trace.agent.name, sub_trace.agent.name) == ("agent", "sub")
        assert sub_trace.num_turns > 10
        assert main_trace.metrics["sub_llm_turns"] == sub_trace.num_turns
        metrics = {name: value or 0 for name, value in main_trace.metrics.items()}
        assert metrics["sub_llm_max_parallel"] > 1
        assert metrics["main_prompt_tokens"] < 100_000 < metrics["sub_llm_prompt_tokens"]


def test_the_page_of_the_run_opens_a_sub_call_from_the_turn_that_made_it(
    needles: tuple[FinishedEvaluation, ScriptedModel, ScriptedModel], browser: Browser, tmp_path: Path
) -> None:
    finished, _, _ = needles
    page = tmp_path / "page.html"
    index = written(finished.directory, page=page)
    assert {row["task"] for row in index["rows"]} == {"diary-animal", "letters-unwell", "minutes-bell"}
    row = index["rows"][0]
    browser.open(page, f"#/r/{row['id']}")
    assert browser.run("document.querySelectorAll('.subs a').length") > 10
    browser.run("document.querySelector('.subs a').click()")
    browser.until("location.hash.includes('/sub/') && document.querySelectorAll('article.message').length > 1")
    assert SUB_MODEL in browser.text
    browser.go(f"#/r/{row['id']}/timeline")
    assert "sub call 10" in browser.text
    assert (browser.said, browser.asked) == ([], [page.resolve().as_uri()])


def test_main_and_sub_seat_have_endpoints_models_and_sampling_of_their_own(
    needles: tuple[FinishedEvaluation, ScriptedModel, ScriptedModel],
) -> None:
    _, main, sub = needles
    assert SUB_MODEL not in {request.body["model"] for request in main.requests}
    assert {request.body["model"] for request in sub.requests} == {SUB_MODEL}
    assert {request.body["temperature"] for request in sub.requests} == {0.25}
    assert all("temperature" not in request.body for request in main.requests)


async def test_the_same_needle_is_out_of_reach_without_recursion() -> None:
    with light_opencode_in_place():
        env = OpenCodeRLMEnv(OpenCodeRLMEnvConfig.model_validate({"taskset": {"id": "opencode-rlm"}}))
        async with ScriptedModel(reading_alone, context_window=WINDOW) as model, env.serving():
            episode = await ServedRows(env, model).play_row("diary-animal")
    assert episode.main.stop_condition == "max_total_tokens"
    assert episode.main.reward == 0.0


async def test_over_another_taskset_the_seats_default_runs_the_recursive_harness_to_the_depth_that_is_set(
    tmp_path: Path,
) -> None:
    """A rollout without a sub call adds no trace."""
    home = UserHome(tmp_path)
    rows = write_rows(home.root / "rows.jsonl", [probe("one")])
    arguments = [*probe_arguments(rows, env_id="opencode-rlm"), "--env.max-depth", "0"]
    async with ScriptedModel(ScriptPolicy.of(Reply(text="done"))) as model:
        finished = await home.run("over", model.base_url, *arguments)
        tools = [tool["function"]["name"] for tool in model.requests[0].body["tools"]]
    assert finished.exit_code == 0, finished.log[-3000:]
    (episode,) = finished.episodes
    (trace,) = episode.traces
    assert trace.ok
    assert episode.env.id == "opencode-rlm+probe-tasks"
    assert (trace.agent.name, trace.metrics["sub_llm_calls"]) == ("agent", 0)
    assert trace.agent.config.harness is not None
    assert trace.agent.config.harness.id == "opencode-rlm"
    assert "llm_subcall" in tools
    assert "task" not in tools
    assert home.leftovers() == []


async def test_the_recursive_harness_refuses_an_environment_that_does_not_route(tmp_path: Path) -> None:
    never = ScriptPolicy.of(Reply(text="done"))
    async with serving(tmp_path, never, agent={"harness": {"id": "opencode-rlm"}}) as served:
        (problem,) = problems(await served.play())
        assert served.requests == []
    assert "--env.id opencode-rlm" in problem

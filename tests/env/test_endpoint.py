"""The first contact with an endpoint: what a run of `vf-eval` says of one that cannot be used, and how early."""

import asyncio
import json
import re
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import verifiers.v1 as vf
from aiohttp import web
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent import evaluation
from opencode_env.cli_agent.evaluation import Evaluation
from opencode_env.errors import UnusableEndpointError
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_env.scripted_model.policy import tokens_of
from opencode_env.scripted_model.server import RecordedRequest
from opencode_runs.difficulty.rate import rate
from verifiers.v1.clients import ModelContext
from verifiers.v1.trace import Error

from tests.support.replies import bash, faulty
from tests.support.rows import probe, probe_arguments, write_rows
from tests.support.served_app import served
from tests.support.user_home import FinishedEvaluation, UserHome, closed_port

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

WINDOW = 32_050
"""Small enough that the light program's prompt, of a few hundred tokens, and an answer of 32,000 do not fit."""
REFUSED = "no such parameter: parallel_tool_calls"


class Engine(ScriptedModel):
    """An endpoint that is not known for the scripted model: vLLM 0.29's, by its window."""

    status = 200

    async def _models(self, http: web.Request) -> web.Response:
        card = {"id": "scripted-model", "owned_by": "vllm", "max_model_len": WINDOW}
        said = {"data": [card]} if self.status == 200 else {"error": {"message": "Incorrect API key provided"}}
        return web.json_response(said, status=self.status)

    async def _answer(self, http: web.Request, record: RecordedRequest) -> web.StreamResponse:
        text = await http.text()
        limit, prompt = json.loads(text)["max_tokens"], tokens_of(len(text))
        if prompt + limit <= WINDOW:
            return await super()._answer(http, record)
        record.body = json.loads(text)
        await self._keep(record)
        told = (
            f"'max_tokens' or 'max_completion_tokens' is too large: {limit}. This model's maximum context length is "
            f"{WINDOW} tokens and your request has {prompt} input tokens ({limit} > {WINDOW} - {prompt})."
        )
        return web.json_response({"error": {"message": told, "code": 400}}, status=400)


class NoKey(Engine):
    status = 401


Runs = dict[str, tuple[FinishedEvaluation, list[Any]]]


@pytest.fixture(scope="module")
def runs(shared_home: UserHome) -> Runs:
    """All of them, played at once, with the bodies of the requests that reached their models."""
    home = shared_home
    one = probe_arguments(write_rows(home.root / "one.jsonl", [probe("one")]))
    four = probe_arguments(write_rows(home.root / "four.jsonl", [probe(f"task-{number}") for number in range(4)]))
    works = ScriptPolicy.of(bash("touch made"), Reply(text="done"))
    refuses = ScriptPolicy.of(faulty("status", status=422, body=REFUSED))

    async def play(
        name: str, *arguments: str, kind: type[ScriptedModel] = Engine, policy: Any = works, url: str = "", **env: str
    ) -> tuple[str, FinishedEvaluation, list[Any]]:
        async with kind(policy) as model:
            finished = await home.run(name, url or model.base_url, *arguments, env=env)
            return name, finished, [request.body for request in model.requests]

    async def play_all() -> Runs:
        small = ["--sampling.max-tokens", "100"]
        again = ["--env.retries.max-retries", "4"]
        finished = await asyncio.gather(
            play("window", *one, *again),
            play("window-known", *one, "--env.agent.harness.context-window", "auto"),
            play("window-small-answer", *one, "--sampling.max-tokens", "8000"),
            play("closed", *one, url=f"http://127.0.0.1:{closed_port()}/v1"),
            play("no-key", *one, kind=NoKey, OWN_KEY="sk-secret-of-mine"),
            play("alike", *four, *small, "-r", "5", "-c", "4", policy=refuses),
            play("alike-to-the-end", *four, *small, "--env.end-after-failures", "None", "-r", "3", policy=refuses),
            play("proxy", *one, NO_PROXY="127.0.0.1,fd00::/8"),
            play("socks", *one, ALL_PROXY="socks5://me:pa55word@127.0.0.1:9"),
            play("closed-with-key", *one, url=f"http://me:pa55word@127.0.0.1:{closed_port()}/v1?api-key=pa55word"),
        )
        return {name: (run, bodies) for name, run, bodies in finished}

    return asyncio.run(play_all())


def last_line(finished: FinishedEvaluation) -> str:
    return finished.log.strip().splitlines()[-1]


def test_a_window_that_refuses_the_answers_limit_is_an_error_and_no_attempt(runs: Runs) -> None:
    finished, bodies = runs["window"]
    error = finished.error("one")
    assert error.startswith("ProviderError: before the model's first answer: upstream 400: ")
    for part in ("maximum context length is 32050 tokens", "--sampling.max-tokens", "context-window N"):
        assert part in error
    assert all(reward is None for reward in finished.trace("one").rewards.values())
    assert [body["max_tokens"] for body in bodies] == [32_000]  # neither the agent nor --env.retries tries again
    (source,) = rate([finished.directory]).sources.values()
    assert [(tally.attempts, tally.errors) for tally in source.tasks.values()] == [(0, 1)]


@pytest.mark.parametrize("name", ["window-known", "window-small-answer"])
def test_with_an_answer_that_fits_the_same_window_is_played(runs: Runs, name: str) -> None:
    finished, bodies = runs[name]
    assert (finished.trace("one").ok, finished.trace("one").reward, len(bodies)) == (True, 1.0, 2)
    assert all(body["max_tokens"] < WINDOW for body in bodies)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("closed", ["refuses connections", "http://127.0.0.1:"]),
        ("closed-with-key", ["refuses connections", "http://127.0.0.1:"]),
        ("no-key", ["answered 401", "Incorrect API key provided", "--client.api-key-var"]),
        ("proxy", ["NO_PROXY=127.0.0.1,fd00::/8"]),
        ("socks", ["ALL_PROXY=socks5://127.0.0.1:9"]),
    ],
)
def test_what_no_rollout_could_get_over_ends_the_run_before_anything_starts(
    runs: Runs, name: str, parts: list[str]
) -> None:
    finished, bodies = runs[name]
    assert finished.exit_code == 1
    assert [part for part in parts if part not in last_line(finished)] == []
    assert (finished.episodes, bodies) == ([], [])
    assert "sk-secret-of-mine" not in finished.log
    assert "pa55word" not in finished.log
    assert ("refuses connections; it is asked again for 10 s\n" in finished.log) == name.startswith("closed")


def test_a_run_whose_rollouts_all_fail_alike_ends_early_and_says_why(runs: Runs) -> None:
    finished, bodies = runs["alike"]
    assert finished.exit_code == 1
    assert re.search(r"the run ends early: 1\d rollouts on 3 tasks failed alike", last_line(finished))
    assert REFUSED in last_line(finished)
    assert 10 <= len(finished.episodes) <= len(bodies) < 20


def test_at_the_end_one_line_says_how_many_failed_why_and_where_to_look(runs: Runs) -> None:
    finished, _ = runs["alike-to-the-end"]
    assert (finished.exit_code, len(finished.episodes)) == (0, 12)
    line = next(line for line in finished.log.splitlines() if line.startswith("12 of 12 failed: "))
    reason, page = line.rsplit("; ", 1)
    assert "ProviderError: before the model's first answer: upstream 422: " + REFUSED in reason
    assert page == 'page "Troubleshooting" of the documents of opencode-envs'
    assert finished.log.count("eval.log") == 1


def config(url: str = "http://127.0.0.1:9/v1", key: str = "NO_SUCH_KEY") -> vf.EvalClientConfig:
    return vf.EvalClientConfig(base_url=url, api_key_var=key)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "its name is unknown"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "over TLS"),
    ],
)
async def test_an_unknown_name_and_a_bad_certificate_end_a_run(
    monkeypatch: pytest.MonkeyPatch, cause: OSError, words: str
) -> None:
    async def fails(config: Any, path: str = "") -> httpx.Response:
        raise httpx.ConnectError(str(cause)) from cause

    monkeypatch.setattr(evaluation, "ask_models", fails)
    with pytest.raises(UnusableEndpointError, match=words):
        await Evaluation("models", 10).require_endpoint(config(), "m")


@pytest.mark.parametrize("status", [200, 404, 429, 500])
async def test_all_else_warns_and_an_endpoint_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    asked: list[str] = []

    async def answers(config: Any, path: str = "") -> httpx.Response:
        asked.append(config.base_url)
        return httpx.Response(status, json={"data": [{"id": "other"}]} if status == 200 else {"error": "hm"})

    monkeypatch.setattr(evaluation, "ask_models", answers)
    run = Evaluation("models", 10)
    for _ in range(3):
        await run.require_endpoint(config(), "m")
    assert len(asked) == 1
    assert "NO_SUCH_KEY is not set" in caplog.text
    assert ("lists no model m" in caplog.text) == (status == 200)
    assert ("answered" in caplog.text) == (status in (429, 500))
    await run.require_endpoint(vf.TrainClientConfig(base_url="http://127.0.0.1:9/v1"), "m")
    await Evaluation("none", 10).require_endpoint(config(), "m")
    assert len(asked) == 1


@pytest.mark.parametrize("status", [200, 400, 403])
async def test_an_endpoint_without_a_list_is_asked_for_one_token_where_that_is_wanted(
    caplog: pytest.LogCaptureFixture, status: int
) -> None:
    asked: list[Any] = []

    async def chat(request: web.Request) -> web.Response:
        asked.append((request.query_string, await request.json()))
        return web.json_response({"error": "its own words"}, status=status)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    async with served(app) as url:
        endpoint = config(f"{url}/v1?api-version=1")
        await Evaluation("models", 10).require_endpoint(endpoint, "m")
        assert asked == []
        if status == 403:
            with pytest.raises(UnusableEndpointError, match=r"answered 403 to /chat/completions: .*its own words"):
                await Evaluation("call", 10).require_endpoint(endpoint, "m")
        else:
            await Evaluation("call", 10).require_endpoint(endpoint, "m")
    [(query, body)] = asked
    assert (query, body["model"], body["max_tokens"]) == ("api-version=1", "m", 1)
    assert ("its own words" in caplog.text) == (status == 400)


async def test_only_an_evaluation_in_this_process_probes_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def plays(*_: Any, **__: Any) -> Any:
        return failed(0, 400)

    async def probes(self: Evaluation, config: Any, model: str) -> None:
        seen.append(model)

    monkeypatch.setattr(vf.Env, "run_slot", plays)
    monkeypatch.setattr(Evaluation, "require_endpoint", probes)
    monkeypatch.setattr(Evaluation, "ended", lambda self, episode: seen.append("ended"))
    env: Any = OpenCodeEnv(OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}}))
    context = ModelContext(model="m", client=config())
    await env.run_slot(None, context)  # a replay
    await env.run_slot(None, context, None, on_trace=print)  # a server
    assert seen == []
    await env.run_slot(None, context, None, print)
    assert seen == ["m", "m", "m", "ended"]  # the agent's seat, its user's, and its summaries'


def failed(task: int, status: int | None, message: str = "bad request 17", *, unusable: bool = False) -> Any:
    """An episode that an endpoint failed before its first answer, by one that was `unusable`."""
    info = {"gateway": {"unusable": True}} if unusable else {}

    class Failed:
        ok = False
        traces: tuple[Any, ...] = (SimpleNamespace(errors=[], nodes=[], info=info),)
        errors = (Error(type="ProviderError", message=message, status_code=status),)

    Failed.task = type("Task", (), {"key": task})  # type: ignore[attr-defined]
    return Failed()


@pytest.mark.parametrize("status", [408, 429, 500, 503, None])
def test_what_may_pass_never_ends_a_run(status: int | None) -> None:
    run = Evaluation("models", 10)
    for number in range(40):
        run.ended(failed(number, status))


@pytest.mark.parametrize(
    "told",
    [
        "before the model's first answer: the endpoint answered a request for a stream with text/html: ",
        "the model's stream ended without a finish reason",
    ],
)
def test_unusable_answers_end_a_run_and_are_counted_as_one_reason_whatever_they_say(
    told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Evaluation("models", 10)
    for number in range(9):
        run.ended(failed(number, 502, f"{told}<p>{'abcdefghi'[number] * 5}", unusable=True))
    with pytest.raises(UnusableEndpointError, match="10 rollouts on 10 tasks failed alike"):
        run.ended(failed(9, 502, f"{told}<p>another", unusable=True))
    run.close()
    assert f"10 of 10 failed: ProviderError: {told}<p>aaaaa; " in capsys.readouterr().err


def test_an_unusable_answer_that_a_rollout_got_over_is_no_reason_of_another_failure() -> None:
    run = Evaluation("models", 10)
    for number in range(20):
        episode = failed(number, 502, unusable=True)
        episode.errors = (Error(type="TaskError", message="a hook failed", status_code=502),)
        run.ended(episode)


def test_a_run_ends_after_ten_alike_on_three_tasks_or_on_all() -> None:
    run = Evaluation("models", 10)
    for number in range(5):
        run.planned(type("Task", (), {"key": number}))
    for number in range(30):
        run.ended(failed(number % 2, 400))
    with pytest.raises(UnusableEndpointError, match="31 rollouts on 3 tasks"):
        run.ended(failed(2, 400, "bad request 18"))
    alone = Evaluation("models", 10)
    alone.planned(type("Task", (), {"key": 0}))
    for _ in range(9):
        alone.ended(failed(0, 404))
    alone.ended(failed(0, 404, "another"))
    with pytest.raises(UnusableEndpointError, match="10 rollouts on 1 task"):
        alone.ended(failed(0, 404))

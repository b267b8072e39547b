"""What `vf-eval` tells on the terminal of a run as a whole: warnings, a table, how to go on."""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent import evaluation
from opencode_env.cli_agent.evaluation import CapConfig, Evaluation
from opencode_env.conformance.user_home import VF_EVAL
from opencode_env.errors import CapReachedError
from opencode_env.scripted_model import MODEL_ID, Reply, ScriptedModel, ScriptPolicy, Usage
from opencode_runs.traces.record import EpisodeRecord
from pydantic import ValidationError
from rollout_sandbox.told import task_name, without_credentials
from verifiers.v1.cli.eval.runner import gather_rollouts
from verifiers.v1.trace import ModelCall

from tests.support.replies import bash, faulty
from tests.support.rows import write_rows
from tests.support.user_home import UserHome
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

ROWS: list[dict[str, object]] = [
    {"id": "sound", "question": "row sound", "verify": ["test -f made"]},
    {"id": "lacking", "question": "row lacking", "verify": ["python3 -m no_such_module", "no-such-\x1b[31mprogram"]},
    {"id": "tests", "question": "row tests", "verify": ["pytest -q"]},
]


@contextlib.asynccontextmanager
async def started(home: UserHome, url: str, rows: Path, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A `vf-eval` with its dashboard, as it is by default; its output is not a terminal."""
    argv = [str(VF_EVAL), "opencode-env", "--env.taskset.dataset", str(rows), "-m", MODEL_ID, "--client.base-url", url]
    argv += ["--no-push", "--output-dir", str(home.root / "runs"), *more]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=home.work, env=home.environment(), stdout=pipe, stderr=pipe, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_under_the_dashboard_warnings_and_a_table_are_told(shared_home: UserHome) -> None:
    rows = write_rows(shared_home.root / "report.jsonl", ROWS)
    policy = ScriptPolicy.of(bash("touch made"), Reply(text="done"))
    async with (
        ScriptedModel(policy) as model,
        started(shared_home, model.base_url, rows, "--run.name", "report", "-c", "2") as run,
    ):
        _, stderr = await run.communicate()
    told = stderr.decode()
    assert run.returncode == 0, told
    lines = told.splitlines()
    assert lines[0] == "loading the environment …"
    # Of the row whose command runs the agent's code: before the dashboard, and once more at the end.
    assert sum("seems to run the agent's code itself ('pytest')" in line for line in lines) == 2, told
    assert sum("each rollout has 3,600 s" in line for line in lines) == 1
    assert any("No module named no_such_module" in line for line in lines), told
    assert any("no-such-\ufffd[31mprogram" in line and "exit code 127" in line for line in lines), told
    assert "\x1b" not in told
    table = [line.split() for line in lines if line.split()[:1] in (["sound"], ["lacking"], ["tests"], ["all"])]
    assert table[0][:5] == ["sound", "1", "0", "1.000", "1.00"], told
    assert {row[0] for row in table} == {"sound", "lacking", "tests", "all"}
    assert table[-1][:6] == ["all", "3", "tasks", "3", "0", "0.333"]
    run_directory = shared_home.root / "runs" / "report"
    assert lines[-1].startswith(f"traces: {run_directory / 'traces.jsonl'}  log: "), told
    log = (run_directory / "logs" / "latest" / "eval.log").read_text()
    assert " run=3/3 per_minute=" in log
    assert set(re.findall(r"rollout (?:start|done): id=\w+ task=(\S+)", log)) == {"sound", "lacking", "tests"}
    finished = {line.split("task=")[1].split()[0]: line for line in log.splitlines() if "rollout finished: " in line}
    assert "failed='python3 -m no_such_module': exit code 1: " in finished["lacking"]
    assert "No module named no_such_module (and 1 more) run=" in finished["lacking"]
    assert "failed=" not in finished["sound"]
    assert "\x1b" not in log


async def test_an_interrupted_run_says_how_it_goes_on(shared_home: UserHome) -> None:
    rows = write_rows(shared_home.root / "interrupted.jsonl", ROWS[:1])
    async with (
        ScriptedModel(ScriptPolicy.of(faulty("hang"))) as model,
        started(shared_home, model.base_url, rows, "--run.name", "interrupted", "-c", "1", "--no-rich") as run,
    ):
        await until(lambda: model.active == 1)
        run.send_signal(signal.SIGINT)
        _, stderr = await run.communicate()
    assert run.returncode == 130
    saved = shared_home.root / "runs" / "interrupted" / "configs" / "resolved" / "eval.json"
    assert saved.exists()
    assert f"interrupted; to go on: vf-eval @ {saved} --resume" in stderr.decode()
    assert "\n1 of 1 rollouts are missing\n" in stderr.decode()


async def test_a_run_that_reaches_its_cap_ends_and_goes_on_with_another(shared_home: UserHome) -> None:
    home, usage = shared_home, Usage(prompt_tokens=80, completion_tokens=20)
    rows = write_rows(home.root / "capped.jsonl", [{**ROWS[0], "id": f"row-{number}"} for number in range(4)])
    told = [one.model_copy(update={"usage": usage}) for one in (bash("touch made"), Reply(text="done"))]
    async with ScriptedModel(ScriptPolicy.of(*told)) as model:
        run = partial(home.run, "capped", model.base_url, "opencode-env", "--env.taskset.dataset", str(rows), "-c", "1")
        capped = await run("--env.cap.tokens", "500")
        asked = len(model.requests)
        resumed = await run("--resume", "--env.cap.cost", "1", "--env.cap.prices", "100,0,1000")
    assert (capped.exit_code, resumed.exit_code) == (1, 0), capped.log + resumed.log
    *_, going_on, last = capped.log.strip().splitlines()
    assert re.match(
        r"the run ends early: its calls took [56]00 tokens, the cap is --env.cap.tokens 500; --resume", last
    )
    assert "2 of 4 rollouts are missing" in capped.log
    saved = capped.directory / "configs" / "resolved" / "eval.json"
    assert going_on == f"to go on: vf-eval @ {saved} --resume --env.cap.tokens 500"
    assert "Traceback" not in capped.log
    assert asked in (5, 6)  # the third rollout's first call was the last, or one that was under way then
    assert home.leftovers() == []
    assert [episode.ok for episode in resumed.episodes] == [True] * 4
    # The whole run: eight calls of 80 and 20 tokens, half of them before it was resumed.
    (table,) = [line.split() for line in resumed.log.splitlines() if line.startswith("all 4 tasks")]
    assert table[3:7] + table[-2:] == ["4", "0", "1.000", "1.00", "800", "$0.2240"]
    assert " run=4/4 " in resumed.log
    assert "missing" not in resumed.log
    assert all(float(line.split()[-3]) > 0 for line in resumed.log.splitlines() if line.startswith("row-"))


async def test_a_cap_of_cost_counts_every_price_and_cancels_what_is_under_way_once() -> None:
    run = Evaluation("none", None, CapConfig.model_validate({"cost": 0.001, "prices": "1,0.5,10"}))
    cleaned: list[int] = []

    async def rollout(steps: int) -> None:
        async with run.playing():
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(steps):  # which a second cancellation would cut short
                    await asyncio.sleep(0)
                cleaned.append(steps)

    playing = asyncio.ensure_future(gather_rollouts([rollout(0), rollout(50), rollout(5)]))
    await until(lambda: len(run._playing) == 3)
    run.spend(ModelCall(usage=vf.Usage(prompt_tokens=100, cached_input_tokens=200, completion_tokens=79)))
    run.spend(ModelCall())
    await asyncio.sleep(0)
    assert not cleaned
    run.spend(ModelCall(usage=vf.Usage(prompt_tokens=0, completion_tokens=1)))
    with pytest.raises(CapReachedError, match=r"took 380 tokens \(\$0.0010\)"):
        await playing
    assert sorted(cleaned) == [0, 5, 50]


@pytest.mark.parametrize("given", [{"cost": 1}, {"prices": "1,2"}, {"prices": "1,2,x"}, {"prices": "1,-2,3"}])
def test_a_cap_that_cannot_be_counted_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CapConfig.model_validate(given)


def test_what_does_not_fit_the_machine_is_told_with_what_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_free_memory", lambda: 10 * evaluation.AGENT_BYTES)
    assert evaluation.beyond_the_machine(1) is None
    cores = len(os.sched_getaffinity(0))
    told = evaluation.beyond_the_machine(100_000)
    assert told is not None
    assert told.endswith(f"-c {min(10, cores * evaluation.ROLLOUTS_A_CORE)} fits")
    monkeypatch.setattr(evaluation, "_free_memory", lambda: 0)
    assert (evaluation.beyond_the_machine(2) or "").endswith("-c 1 fits")


def test_no_other_process_is_watched() -> None:
    report = evaluation.EvaluationReport(local=True, limited=False)
    assert not report.active
    report.plan(3)
    report.begin(None)
    assert report.progress() == ""


@pytest.mark.parametrize("data", [
    {"idx": 3, "id": "an-id", "name": "a name", "prompt": "What?"},
    {"idx": 3, "name": "a name", "prompt": "What?"},
    {"idx": 3, "prompt": "What\n is\x00 " + "so " * 40},
    {"idx": 3, "prompt": [{"role": "user", "content": "One?"}, {"role": "user", "content": "Two?"}]},
])  # fmt: skip
def test_a_task_has_the_name_that_the_report_gives_it(data: dict[str, object]) -> None:
    line = json.dumps({"id": "e", "task": {"key": "k", "data": data}, "traces": []}).encode()
    assert task_name(vf.TaskData.model_validate(data)) == EpisodeRecord.read(line).called


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("http://me:pa55/word@proxy.example:8080", "http://proxy.example:8080"),
        ("me:pa55word@proxy.example:8080", "proxy.example:8080"),
        ("with ALL_PROXY=socks5://me:p@h:1: for URL('socks5://me:p@h:1')", "with ALL_PROXY=socks5://h:1: for URL('socks5://h:1')"),
        ("https://token@host.example/v1?api-version=1&Api-Key=k&x=2", "https://host.example/v1?api-version=1&Api-Key=[key]&x=2"),
        ("http://[fd00::1]:8000/v1 and a@b.c, run/@cf/meta", "http://[fd00::1]:8000/v1 and a@b.c, run/@cf/meta"),
    ],
)  # fmt: skip
def test_no_address_is_shown_with_its_password_or_key(told: str, shown: str) -> None:
    assert without_credentials(told) == shown

"""`python -m opencode_env.demo`, the command behind `make demo`; all of its samples in `make test-whole`."""

import asyncio
import re
import subprocess
from collections.abc import Mapping

import pytest
from opencode_env.samples import load_samples
from opencode_env.scripted_model import MODEL_ID, SamplesPolicy, ScriptedModel

from tests.docs.console import commands_of, looks_like
from tests.docs.pages import ROOT, blocks_of
from tests.support.browser import Browser
from tests.support.shims import finished_with_children
from tests.support.sizes import WHOLE, size
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.slow]

SAMPLES = ["fix-median", "write-roman"]
"""Those that the README shows. They read, edit, write and run; `test_podman.py` solves one by searching."""


def demo(home: UserHome, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end."""
    return finished_with_children(["-m", "opencode_env.demo", *arguments], home.work, home.environment(env))


def test_it_shows_each_rollout_as_it_ends_a_table_of_rewards_and_where_the_traces_are(
    home: UserHome, browser: Browser
) -> None:
    chosen = size(SAMPLES, [sample.id for sample in load_samples()])
    options = [] if WHOLE else ["--samples", *SAMPLES]
    done = demo(home, "--success-rate", "1.0", "--concurrency", "3", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not a language model" in done.stdout
    for name in chosen:
        (seconds,) = re.findall(rf"rollout finished: task={name} .* seconds=([\d.]+) ", done.stdout)
        row = rf"^{name} +1 +0 +1\.000 +1\.00 +{re.escape(seconds)} +[\d,]+$"
        assert re.search(row, done.stdout, re.MULTILINE), done.stdout
    (traces,) = re.findall(r"^traces: (\S+)  log: \S+$", done.stdout, re.MULTILINE)
    assert (home.work / traces).is_file()
    assert home.leftovers() == []
    (shown,) = [commands_of(block) for block in blocks_of(ROOT / "README.md") if "test_demo" in block.run_by]
    assert looks_like(shown[0].output, done.stdout)
    page = home.work / done.stdout.splitlines()[-1]
    browser.open(page)
    assert "mean reward" in browser.text
    browser.go("#/rollouts")
    assert set(browser.run("[...document.querySelectorAll('a.open')].map((one) => one.innerText)")) == set(chosen)
    browser.run("document.querySelector('a.open').click()")
    browser.until("document.querySelectorAll('article.message .call').length > 0")
    assert (browser.said, browser.asked) == ([], [page.resolve().as_uri()])


async def test_a_model_of_the_users_own_plays_the_samples_with_their_options_and_ends_with_the_page(
    home: UserHome,
) -> None:
    async with ScriptedModel(SamplesPolicy(success_rate=1.0)) as model:
        url = model.base_url
        own = ["--model", MODEL_ID, "--url", url, "--samples", SAMPLES[1], "--", "--sampling.max-tokens", "77"]
        done = await asyncio.to_thread(demo, home, *own, env={"PRIME_API_KEY": "meant for others"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"model: {MODEL_ID}, at {url}\n")
    assert re.search(rf"^{SAMPLES[1]} +1 +0 +1\.000", done.stdout, re.MULTILINE), done.stdout
    assert {request.body["max_tokens"] for request in model.requests} == {77}
    assert "meant for others" not in str([request.headers for request in model.requests])
    assert (home.work / done.stdout.splitlines()[-1]).name == "report.html"


def test_make_hands_a_model_on_and_one_without_its_url_is_refused(home: UserHome) -> None:
    asked = ["make", "-n", "demo", "MODEL=small", "URL=http://x/v1", "ARGS=-r 3"]
    shown = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert 'opencode_env.demo --model "small" --url "http://x/v1" -r 3' in shown
    done = demo(home, "--model", "small")
    assert (done.returncode, done.stderr.splitlines()[-1].partition("error: ")[2]) == (
        2,
        "your own model needs both: --model NAME and --url URL (make demo MODEL=NAME URL=URL)",
    )


def test_without_bubblewrap_it_says_in_one_line_what_to_do(home: UserHome) -> None:
    done = demo(home, env={"PATH": str(home.temporary)})
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "apt-get install bubblewrap" in line
    assert done.stdout == ""

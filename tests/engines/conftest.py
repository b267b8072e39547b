"""The engine that `ENGINE` names, and what the tests say of it; `make test-engines` alone collects them."""

import os
import re
from collections.abc import Generator, Iterator

import pytest

from scripts.engines import answers, serving
from scripts.engines.installation import install
from tests.engines.playing import Engine
from tests.support.families import loaded_tokenizer
from tests.support.user_home import closed_port

_SAID = pytest.StashKey[dict[str, str]]()


@pytest.fixture(scope="session")
def engine(sandboxes: None) -> Iterator[Engine]:
    """A running engine; `ENGINE_URL` names one that runs already."""
    version = os.environ["ENGINE"]
    model = install(version)
    tokenizer = loaded_tokenizer(model)
    if url := os.environ.get("ENGINE_URL"):
        yield Engine(version, url, model, tokenizer)
        return
    with serving.engine(version, closed_port()) as url:
        yield Engine(version, url, model, tokenizer)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The answer to the question of a test: yes with its figures, no with what failed, or not tried with the reason."""
    report = yield
    marker = item.get_closest_marker("engine")
    if marker is None or (report.outcome == "passed" and report.when != "call"):
        return report
    said = item.session.stash.setdefault(_SAID, {})
    figures = "; ".join(str(value) for name, value in item.user_properties if name == "figures")
    answer = f"yes, {figures}" if figures else "yes"
    if call.excinfo is not None:
        reason = re.sub(r"[\s|]+", " ", call.excinfo.exconly()).strip()[:200]
        answer = f"{'not tried' if report.outcome == 'skipped' else 'no'}: {reason}"
    said[marker.args[0]] = answer
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the answers."""
    if said := session.stash.get(_SAID, None):
        answers.keep(f"vLLM {os.environ['ENGINE']}", said)

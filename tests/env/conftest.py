"""Fixtures of the end-to-end tests."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.support.rows import probe, probe_arguments, write_rows
from tests.support.user_home import Finished, UserHome, closed_port


@pytest.fixture(scope="session", autouse=True)
def dead_endpoint(
    request: pytest.FixtureRequest, sandboxes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[Finished] | None]:
    """A run whose model endpoint refuses connections, started with the first test of this directory.

    OpenCode tries again for more than a minute, nearly all of it waiting, so it waits beside the other tests.
    """
    if not any(item.path.name == "test_failures.py" for item in request.session.items):
        yield None
        return
    home = UserHome(tmp_path_factory.mktemp("dead"))
    rows = write_rows(home.root / "rows.jsonl", [probe("one")])
    run = home.run("dead-endpoint", f"http://127.0.0.1:{closed_port()}/v1", *probe_arguments(rows))
    with ThreadPoolExecutor(1) as background:
        yield background.submit(asyncio.run, run)

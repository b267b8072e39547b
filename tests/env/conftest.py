"""Fixtures of the end-to-end tests."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.env.desk import Desk, Finished, closed_port
from tests.env.rows import probe, probe_arguments, write_rows


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A fresh desk."""
    return Desk(tmp_path)


@pytest.fixture(scope="module")
def shared_desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """The desk of a test module whose runs are shared by its tests."""
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="session", autouse=True)
def dead_endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[Finished] | None]:
    """A run whose model endpoint refuses connections, started with the first test of this directory.

    OpenCode tries again for more than a minute, nearly all of it waiting, so it waits beside the other tests.
    """
    if not any(item.path.name == "test_failures.py" for item in request.session.items):
        yield None
        return
    desk = Desk(tmp_path_factory.mktemp("dead"))
    rows = write_rows(desk.root / "rows.jsonl", [probe("one")])
    run = desk.run("dead-endpoint", f"http://127.0.0.1:{closed_port()}/v1", *probe_arguments(rows))
    with ThreadPoolExecutor(1) as background:
        yield background.submit(asyncio.run, run)

"""Fixtures of the whole suite: container images, and other versions of OpenEnv. In CI what they need must be there."""

import functools
import gc
import logging
import os
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import httpx
import httpx._transports.default as _transports
import hypothesis
import pytest

from tests.support.browser import Browser, chromium
from tests.support.lent_containers import lending
from tests.support.light_opencode import REAL, light_opencode_in_place
from tests.support.other_python import python_with
from tests.support.podman import Unavailable, base_image, containers_conf
from tests.support.prime_api import PrimeApi, serving_apart, with_opencode
from tests.support.user_home import UserHome

pytest_plugins = ["tests.support.tiers", "tests.support.costs", "tests.support.programs"]

# Real engines are asked by `make test-engines`, which says which.
collect_ignore = [] if os.environ.get("ENGINE") else ["engines"]

NEWEST_OPENENV = "0.10.0"

# What the tests and their programs import is compiled once and not by each process, whatever this machine's environment
# says; and objects of modules, which stay, are not work for the collector while they are made, nor later.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
gc.disable()

# Certificates are read once, not for each HTTP client.
_transports.create_ssl_context = functools.cache(httpx.create_ssl_context)  # type: ignore[attr-defined]

# On a busy machine a generated example takes as long as the machine lets it take.
hypothesis.settings.register_profile("without-deadline", deadline=None)
hypothesis.settings.load_profile("without-deadline")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and what the tests start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Four workers more than processors, as much of a test is waiting; none where a few files are run."""
    if len(config.args) <= 3 and all(".py" in word for word in config.args):
        return 0
    # Each pays for what it imports; quick tests wait for little.
    return min(4, os.cpu_count() or 1) if config.getoption("--quick") else min(6, (os.cpu_count() or 1) + 4)


def pytest_collection_finish() -> None:
    """See above."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file stays on one worker, so the files that take longest come first."""
    ranks: defaultdict[Path, int] = defaultdict(int)
    for item in items:
        ranks[item.path] |= 2 * bool(item.get_closest_marker("slow")) + bool(item.get_closest_marker("opencode"))
    items.sort(key=lambda item: -ranks[item.path])


@pytest.fixture(autouse=True)
def library_logging() -> None:
    """A command that ran in this process keeps the records of verifiers' loggers, of which ours are some, from
    `caplog`."""
    for name in ("verifiers", "verifiers.v1"):
        logging.getLogger(name).setLevel(logging.NOTSET)
        logging.getLogger(name).propagate = True


@pytest.fixture(scope="module")
def browser(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless browser of the module's own."""
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest.fixture(scope="session")
def sandboxes() -> None:
    """Whatever starts a sandbox or an agent asks for this, itself or through another fixture, and so is not quick.

    Skips where bubblewrap is missing, except in CI.
    """
    if shutil.which("bwrap") is None:
        if os.environ.get("CI"):
            pytest.fail("the tests of sandboxes must run in CI: bubblewrap is not installed")
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")


@pytest.fixture(scope="session")
def programs() -> None:
    """Whatever starts a Python of its own asks for this, itself or through another fixture, and so is not quick."""


@pytest.fixture(scope="module")
def light_opencode(sandboxes: None) -> Iterator[None]:
    """Where the promise is the environment's, a program of a tenth second takes OpenCode's place in a module."""
    with light_opencode_in_place():
        yield


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tokenizer of the families of `tests.support.families`."""
    from tests.support.families import save_tokenizer  # takes seconds to import

    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def home(sandboxes: None, tmp_path: Path) -> UserHome:
    """A fresh home."""
    return UserHome(tmp_path)


@pytest.fixture(scope="module")
def shared_home(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> UserHome:
    """The home of a test module whose runs are shared by its tests."""
    return UserHome(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def podman_image(sandboxes: None) -> Iterator[str]:
    """Name of a small local image with python3; podman works for as long as this fixture lives.

    Skips where podman or debootstrap is missing, except in CI (`CI` set), where that is a failure.
    """
    with containers_conf(), lending():
        try:
            image = base_image()
        except Unavailable as error:
            if os.environ.get("CI"):
                pytest.fail(f"the container tests must run in CI: {error}")
            pytest.skip(f"no containers here: {error}")
        yield image


@pytest.fixture(scope="session")
def prime_server(sandboxes: None) -> Iterator[PrimeApi]:
    """A local server that speaks Prime's API, in a thread of its own; one image of it holds OpenCode: the real one,
    also where the module that asks first plays with the light one."""
    with serving_apart(PrimeApi(with_opencode(Path(REAL["OPENCODE_ENV_CACHE"])))) as server:
        yield server


@pytest.fixture
def prime_api(prime_server: PrimeApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrimeApi]:
    """The server, to which the SDK of this process is led; nothing of the test may be left in it."""
    for name, value in prime_server.environment.items():
        monkeypatch.setenv(name, value)
    yield prime_server
    assert [sandbox.id for sandbox in prime_server.living] == []


@pytest.fixture(scope="session")
def newest_python() -> Path:
    """A Python with the newest OpenEnv that was tried."""
    return python_with("openenv", f"openenv=={NEWEST_OPENENV}")

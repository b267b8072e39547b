"""The places the harness is tested in, and images with what the install strategies look for."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, CachedBuild, ensure_build, host_platform

from tests.opencode.archives import GOOD, Archives
from tests.support.light_opencode import light_opencode_in_place
from tests.support.places import Confined, Container, Place, Prime
from tests.support.podman import SUITES_IMAGE, base_image, derived_image
from tests.support.prime_api import OPENCODE_IMAGE, PrimeApi

WITH_PROGRAMS = "COPY opencode rg /usr/local/bin/"
WITH_USER = "RUN useradd --create-home agent && mkdir /app && chown agent /app"


@pytest.fixture(scope="session")
def confined(sandboxes: None) -> Place:
    """The confined local sandbox."""
    return Confined()


@pytest.fixture
def light(sandboxes: None) -> Iterator[None]:
    """The light program, which sends a failed call as often, is OpenCode in one test."""
    with light_opencode_in_place(7):
        yield


@pytest.fixture(scope="session")
def build() -> CachedBuild:
    """This machine's cached OpenCode and ripgrep."""
    return ensure_build(DEFAULT_VERSION, host_platform())


@pytest.fixture(scope="session")
def opencode_image(podman_image: str, build: CachedBuild) -> str:
    """The base image with OpenCode and ripgrep on PATH: no rollout has to upload 185 MB."""
    programs = {name: build.directory / name for name in ("opencode", "rg")}
    return derived_image("programs", WITH_PROGRAMS, programs)


@pytest.fixture(scope="session")
def user_image(podman_image: str, build: CachedBuild) -> str:
    """OpenCode's image with a user `agent` that owns /app."""
    programs = {name: build.directory / name for name in ("opencode", "rg")}
    return derived_image("user", f"{WITH_PROGRAMS}\n{WITH_USER}", programs)


@pytest.fixture(scope="session")
def container(opencode_image: str) -> Place:
    """A podman container that holds OpenCode."""
    return Container(opencode_image)


@pytest.fixture
def prime(prime_api: PrimeApi) -> Place:
    """A Prime sandbox whose image holds OpenCode, on the local server."""
    return Prime(OPENCODE_IMAGE)


PLACES = ["confined", pytest.param("container", marks=pytest.mark.podman), "prime"]


@pytest.fixture(params=PLACES)
def place(sandboxes: None, request: pytest.FixtureRequest) -> Place:
    """All kinds of sandbox, one after the other."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def light_container(podman_image: str) -> Place:
    """A podman container in which the light program, which is uploaded, finds a whole Python."""
    return Container(base_image(SUITES_IMAGE))


@pytest.fixture(params=PLACES)
def light_place(light: None, request: pytest.FixtureRequest) -> Place:
    """All kinds of sandbox, one after the other, with the light program but for the one of Prime."""
    found: Place = request.getfixturevalue({"container": "light_container"}.get(request.param, request.param))
    return found


@pytest.fixture
def fake_program(tmp_path: Path) -> Path:
    """Directory for a shell script that plays the program `opencode`; an `rg` is there."""
    directory = tmp_path / "programs"
    directory.mkdir()
    (directory / "rg").symlink_to(shutil.which("true") or "/bin/true")
    return directory


@pytest.fixture
def archives(request: pytest.FixtureRequest) -> Iterator[Archives]:
    """A server of archives: a good one, or what the test is parametrised with."""
    with Archives(*getattr(request, "param", (GOOD,))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()

"""`vf-eval opencode-swe` with real OpenCode: in confined sandboxes, with recursive OpenCode, and in containers."""

from typing import Any

import pytest

from tests.env.test_podman import podman
from tests.support.podman import SUITES_IMAGE, Unavailable, base_image
from tests.support.sizes import WHOLE, size
from tests.support.user_home import UserHome
from tests.swe.evaluating import Case, Form, assert_scored, run
from tests.swe.playing import patching
from tests.swe.repositories import CALCULATOR, FORMS, SLUGS, STORE, Repository, made, r2e, rebench, swelego

pytestmark = [pytest.mark.opencode, pytest.mark.slow]


def cases(repository: Repository, form: Form, **columns: Any) -> list[Case]:
    """The gold patch, nothing, and half the gold patch."""
    scripts = {"gold": (patching(made(repository).gold), 1.0), "half": (patching(made(repository).half), 0.0)}
    scripts["untouched"] = "true", 0.0
    name = f"{repository.name}-{form.__name__}"
    return [Case.of(form, repository, f"{name}-{key}", *played, **columns) for key, played in scripts.items()]


def test_rows_without_an_image_are_played_in_the_confined_sandbox(shared_home: UserHome) -> None:
    played = [*cases(CALCULATOR, swelego), *size([], cases(STORE, r2e))]
    finished = run(shared_home, "confined", played)
    assert_scored(finished, played)
    trace = finished.trace("calculator-swelego-gold")
    assert trace.info["swe"]["patch"].startswith("diff --git a/calc/more.py")
    assert trace.metrics["fail_to_pass_passed"] == 2.0
    assert {tool.name for tool in trace.tools} == {"bash", "edit", "write"}
    assert finished.trace("calculator-swelego-half").metrics["fail_to_pass_passed"] == 1.0
    assert shared_home.leftovers() == []


@pytest.mark.skipif(not WHOLE, reason="recursive OpenCode plays rows in make test-whole")
def test_recursive_opencode_plays_them_too(shared_home: UserHome) -> None:
    played = cases(CALCULATOR, r2e)[:1]
    assert_scored(run(shared_home, "rlm", played, "--env.id", "opencode-rlm"), played)


@pytest.mark.podman
def test_rows_with_an_image_are_played_in_containers(shared_home: UserHome, podman_image: str) -> None:
    try:
        image = base_image(SUITES_IMAGE)
    except Unavailable as error:
        pytest.fail(str(error))
    named = {"image_name": image, "docker_image": image, "image_url": image, "image": image}
    played = cases(SLUGS, rebench, **named)[: size(2, 3)]
    for form in size((), FORMS):
        played += cases(CALCULATOR, form, **named)
    assert_scored(run(shared_home, "podman", played, *podman(image)), played)

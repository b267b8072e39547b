"""`vf-eval opencode-swe`: in confined sandboxes, with recursive OpenCode, and in containers.

In `make test` the light program plays each of the eight forms, and OpenCode one in containers; in
`make test-whole` OpenCode plays each with the gold patch, half of it and nothing, five times, confined and in
containers. `test_scoring` scores the others of three repositories in eight forms.
"""

from contextlib import nullcontext
from itertools import cycle
from typing import Any

import pytest

from tests.env.test_podman import podman
from tests.support.light_opencode import light_opencode_in_place
from tests.support.podman import SUITES_IMAGE, base_image
from tests.support.sizes import WHOLE, size
from tests.support.user_home import UserHome
from tests.swe.evaluating import Case, Form, assert_scored, run
from tests.swe.libraries import pythons
from tests.swe.playing import patching
from tests.swe.repositories import (
    CALCULATOR,
    CASES,
    FOREIGN_FORMS,
    FORMS,
    REPOSITORIES,
    SLUGS,
    Repository,
    made,
    r2e,
    rebench,
    swesmith,
)

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.timeout(size(900, 5 * 3600))]

ALL_FORMS = (*FORMS, *FOREIGN_FORMS)
TIMES = size(1, 5)


def case(repository: Repository, form: Form, kind: str, **columns: Any) -> Case:
    """What the agent does with a row: the gold patch, half of it, or nothing."""
    found = made(repository)
    script = {"gold": patching(found.gold), "half": patching(found.half), "untouched": "true"}[kind]
    # The id of a row of SWE-smith is the name of its branch.
    name = f"org__{repository.name}.12345678." if form is swesmith else f"{repository.name}-{form.__name__}-"
    return Case.of(form, repository, name + kind, script, float(kind == "gold"), **columns)


def cases(**columns: Any) -> list[Case]:
    """Every form, of one repository or another: the gold patch, and half of it where no other test plays that."""
    found = []
    for number, (form, repository) in enumerate(zip(ALL_FORMS, cycle(REPOSITORIES), strict=False)):
        kinds = size(CASES[:1] if number % 6 else CASES[:2], CASES)
        found += [case(repository, form, kind, **columns) for kind in kinds]
    return found


def test_rows_of_every_form_are_played_in_the_confined_sandbox(shared_home: UserHome) -> None:
    with nullcontext() if WHOLE else light_opencode_in_place():
        finished = run(shared_home, "confined", cases(), "-r", str(TIMES), **pythons(shared_home.root))
    assert_scored(finished, cases(), TIMES)
    patches = {str(one.task.data.id): one.traces[0].info["swe"]["patch"] for one in finished.episodes}
    assert patches["calculator-r2e-gold"].startswith("diff --git a/calc/more.py")
    # A trace has a row's files by their digest.
    assert max(len(episode.model_dump_json()) for episode in finished.episodes) < 400_000
    rows = [one.task.data.model_dump()["swe"] for one in finished.episodes]
    assert all((row.get("archive") or row["bundle"]).startswith("sha256:") for row in rows)
    assert shared_home.leftovers() == []


@pytest.mark.skipif(not WHOLE, reason="recursive OpenCode plays rows in make test-whole")
def test_recursive_opencode_plays_them_too(shared_home: UserHome) -> None:
    played = [case(CALCULATOR, r2e, "gold")]
    assert_scored(run(shared_home, "rlm", played, "--env.id", "opencode-rlm"), played)


@pytest.mark.podman
def test_rows_with_an_image_are_played_in_containers(shared_home: UserHome, podman_image: str) -> None:
    image = base_image(SUITES_IMAGE)
    named = {"image_name": image, "docker_image": image, "image_url": image, "image": image}
    played = cases(**named) if WHOLE else [case(SLUGS, rebench, kind, **named) for kind in CASES[:2]]
    options = ["-r", str(TIMES), *podman(image)]
    finished = run(shared_home, "podman", played, *options, **pythons(shared_home.root))
    assert_scored(finished, played, TIMES)
    assert {tool.name for tool in finished.episodes[0].traces[0].tools} == {"bash", "edit", "write"}

"""Our podman runtime keeps every promise of the sandboxes' conformance suite that can be asked of a container."""

from pathlib import Path

import pytest
from rollout_sandbox.conformance import PROMISES, NotAsked, Promise, Subject

pytestmark = pytest.mark.podman

ABOUT_ITS_LIFE = {"the_end_of_a_sandbox", "exposed_ports", "many_at_once"}
LENT = "tests.support.lent_containers.LentBackend"
"""The same runtime in containers that other tests had before."""


@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.name)
async def test_a_podman_container_keeps_a_promise(
    podman_image: str, promise: Promise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where podman's monitor leaves a file when a process runs out of memory
    try:
        await promise.check(Subject("podman" if promise.name in ABOUT_ITS_LIFE else LENT, {"image": podman_image}))
    except NotAsked:
        assert promise.name in {"disk", "processes"}

"""Our podman runtime keeps every promise of the sandboxes' conformance suite that can be asked of a container."""

from pathlib import Path

import pytest
from agent_sandbox.conformance import PROMISES, NotAsked, Promise, Subject

pytestmark = pytest.mark.podman


@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.name)
async def test_a_podman_container_keeps_a_promise(
    podman_image: str, promise: Promise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where podman's monitor leaves a file when a process runs out of memory
    try:
        await promise.check(Subject("podman", {"image": podman_image}))
    except NotAsked:
        assert promise.name in {"disk", "processes"}

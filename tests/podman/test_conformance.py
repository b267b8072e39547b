"""Our podman runtime keeps every promise of the sandboxes' conformance suite that can be asked of a container."""

from pathlib import Path
from unittest import SkipTest

import pytest
from rollout_sandbox.conformance import test_abilities, test_commands, test_isolation, test_network
from rollout_sandbox.conformance.subject import Subject

from tests.sandbox.test_conformance import PROMISES

pytestmark = pytest.mark.podman

ABOUT_ITS_LIFE = {
    test_abilities.CHECKS["container"],
    test_commands.test_removing_a_sandbox_ends_every_process_in_it,
    test_commands.test_cleanup_alone_removes_a_sandbox_without_an_event_loop,
    test_commands.test_a_start_that_is_cancelled_leaves_nothing,
    test_commands.test_many_sandboxes_start_work_and_end_at_once,
    test_network.test_a_port_inside_is_reached_through_expose_until_the_end,
}
LENT = "tests.support.lent_containers.LentBackend"
"""The same runtime in containers that other tests had before."""
WITHOUT = ("agents_view", "agent_survived", "agent_can_cause", "trusted_python", "others_held", "agent_programs")
"""Abilities that a container has not."""
NOT_ASKED = {
    *(test_abilities.CHECKS[name] for name in (*WITHOUT, "agent_code")),
    test_isolation.test_what_fills_the_disk_is_ended_and_the_sandbox_works_on,
    test_isolation.test_a_fork_bomb_stops_at_its_limit_and_other_commands_start,
}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
async def test_a_podman_container_keeps_a_promise(
    podman_image: str, promise: test_abilities.Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        await promise(Subject("podman" if promise in ABOUT_ITS_LIFE else LENT, {"image": podman_image}))
    except SkipTest:
        assert promise in NOT_ASKED
    assert not [*tmp_path.iterdir()], "podman's monitor leaves a file where it was started when memory is short"

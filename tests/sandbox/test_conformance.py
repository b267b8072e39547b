"""The confined sandbox keeps every promise of the suite, and the suite says what is wrong with another one."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import SkipTest

import pytest
from rollout_sandbox.compat import AFTER_0_4_0
from rollout_sandbox.confined import Bind, LocalSandboxConfig, provision_confined
from rollout_sandbox.conformance import test_abilities, test_commands, test_isolation, test_network
from rollout_sandbox.conformance.__main__ import main
from rollout_sandbox.conformance.subject import Subject
from verifiers.v1.runtimes import Runtime

from tests.support.programs import finished, own_variables

pytestmark = pytest.mark.usefixtures("sandboxes")

PROMISES = [
    check
    for module in (test_abilities, test_commands, test_isolation, test_network)
    for name, check in vars(module).items()
    if name.startswith("test_")
]
NOT_ASKED = {"agents_view", "agent_can_cause", "container"}
"""Abilities that the confined sandbox has not."""
UNCONFINED = "subprocess"
"""verifiers' own runtime that runs programs on this machine as they are."""


@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
async def test_the_confined_sandbox_keeps_a_promise(promise: test_abilities.Check) -> None:
    lacking = [test_abilities.CHECKS[name] for name in NOT_ASKED]
    try:
        await promise(Subject("confined"))
    except SkipTest:
        assert promise in (*lacking, test_commands.test_commands_and_files_of_another_user_are_that_users)


def test_every_ability_of_the_interface_has_a_promise() -> None:
    assert set(test_abilities.CHECKS) == set(test_abilities.ABILITIES)


def test_the_command_names_what_is_broken_says_what_was_seen_and_what_to_change(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "rollout_sandbox.conformance", UNCONFINED, "-v", "-k"]
    done = finished([*argv, "neighbour_is_seen or form_of_the_interface"], tmp_path, own_variables())
    assert done.returncode == 1
    assert "test_each_ability_has_the_form_of_the_interface[subprocess] PASSED" in done.stdout
    assert "test_no_process_of_the_host_or_of_a_neighbour_is_seen[subprocess] FAILED" in done.stdout
    assert "a process of the host is seen" in done.stdout
    assert "Give each sandbox a process namespace of its own" in done.stdout


@pytest.mark.parametrize(
    "promise",
    [
        test_isolation.test_no_file_of_the_host_is_read_or_written,
        test_isolation.test_no_writable_directory_is_shared_by_two_sandboxes,
        test_isolation.test_no_process_of_the_host_or_of_a_neighbour_is_seen,
        test_isolation.test_nothing_of_the_hosts_environment_comes_in,
    ],
)
async def test_programs_without_a_sandbox_break_the_promises_of_isolation(promise: test_abilities.Check) -> None:
    with pytest.raises(AssertionError, match=r"host|a variable of this process"):
        await promise(Subject(UNCONFINED))


async def test_a_place_that_two_sandboxes_share_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    class Sharing(Subject):
        @asynccontextmanager
        async def box(self, **more: object) -> AsyncIterator[Runtime]:
            shared = Bind(tmp_path, "/mnt/of all", writable=True)
            async with provision_confined(LocalSandboxConfig(own_user=False), [shared]) as box:
                yield box

    with pytest.raises(AssertionError, match="both can write /mnt/of all"):
        await test_isolation.test_no_writable_directory_is_shared_by_two_sandboxes(Sharing("confined"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["no.such.module.Backend"], "No module named"),
        (["rollout_sandbox.NoSuchBackend"], "no attribute"),
        (["no-such-type"], "Input tag 'no-such-type'"),
        (["confined", "--option", "no_such=1"], "no_such"),
    ],
)
def test_a_runtime_that_cannot_be_started_is_no_broken_promise(
    capfd: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    assert main(words) == 2
    assert reason in capfd.readouterr().out


@pytest.mark.skipif(not AFTER_0_4_0, reason="verifiers 0.4.0 makes runtimes of its own types only")
async def test_a_runtime_is_named_as_in_a_configuration_of_verifiers() -> None:
    async with Subject("custom", {"import_path": "rollout_sandbox.ConfinedBackend"}).box() as box:
        assert (await box.run(["id", "-u"], {})).stdout == "1000\n"

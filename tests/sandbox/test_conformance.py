"""The confined sandbox keeps every promise of the suite, and the suite says what is wrong with another one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rollout_sandbox.compat import AFTER_0_4_0
from rollout_sandbox.confined import Bind, LocalSandboxConfig, provision_confined
from rollout_sandbox.conformance import PROMISES, Broken, NotAsked, Promise, Subject
from rollout_sandbox.conformance.__main__ import main
from verifiers.v1.runtimes import Runtime

pytestmark = pytest.mark.usefixtures("sandboxes")

UNCONFINED = "subprocess"
"""verifiers' own runtime that runs programs on this machine as they are."""


@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.name)
async def test_the_confined_sandbox_keeps_a_promise(promise: Promise) -> None:
    try:
        await promise.check(Subject("confined"))
    except NotAsked:
        assert promise.name == "users"


def test_the_command_says_yes_or_no_and_what_to_change(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["confined", "-k", "bounded_reads"]) == 0
    assert "confined: 1 kept, 0 broken, 0 not asked" in capfd.readouterr().out
    assert main([UNCONFINED, "-k", "others_processes"]) == 1
    said = capfd.readouterr().out
    assert "NO        No process of the host's" in said
    assert "seen: a process of the host is seen" in said
    assert "to change: give each sandbox a process namespace of its own" in said


@pytest.mark.parametrize("name", ["the_hosts_files", "shared_places", "others_processes", "the_hosts_environment"])
async def test_programs_without_a_sandbox_break_the_promises_of_isolation(name: str) -> None:
    (promise,) = (one for one in PROMISES if one.name == name)
    with pytest.raises(Exception, match=r"host|a variable of this process"):
        await promise.check(Subject(UNCONFINED))


async def test_a_place_that_two_sandboxes_share_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    class Sharing(Subject):
        @asynccontextmanager
        async def box(self, **more: object) -> AsyncIterator[Runtime]:
            shared = Bind(tmp_path, "/mnt/of all", writable=True)
            async with provision_confined(LocalSandboxConfig(own_user=False), [shared]) as box:
                yield box

    (promise,) = (one for one in PROMISES if one.name == "shared_places")
    with pytest.raises(Broken, match="both can write /mnt/of all"):
        await promise.check(Sharing("confined"))
    assert list(tmp_path.iterdir()) == []


def test_the_promises_are_listed_without_a_sandbox(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["confined", "--list"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == len(PROMISES)


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

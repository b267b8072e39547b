"""While a command runs alone, nothing else in the sandbox does."""

import asyncio
import dataclasses
import os

import pytest
from rollout_sandbox.confined import ConfinedRuntime, limits
from rollout_sandbox.confined.limits import Hierarchies, host_hierarchies

from tests.support.waiting import until

from .conftest import confined, program_of, sh

pytestmark = pytest.mark.usefixtures("sandboxes")

TICKING = "i=0; while :; do i=$((i+1)); echo $i > /tmp/tick; done"


async def spying(box: ConfinedRuntime, *args: str) -> None:
    """Start a service that looks into every process that it finds, and wait until it does."""
    await box.run_background(program_of("spy.py", *args), {}, "/tmp/seen")

    async def looks() -> bool:
        await sh(box, "SECRET=bait sleep 0.2")
        return "bait" in (await sh(box, "cat /tmp/seen")).stdout

    await until(looks)


@pytest.mark.parametrize("freezer", [True, False])
async def test_a_spy_sees_nothing_of_a_command_that_runs_alone(monkeypatch: pytest.MonkeyPatch, freezer: bool) -> None:
    if not freezer:
        monkeypatch.setattr(limits, "host_hierarchies", lambda: Hierarchies({}))
    async with confined() as box:
        await spying(box)
        async with box.others_held() as alone:
            done = await sh(alone, "SECRET=solution sh -c 'sleep 0.5; echo done'", SECRET="solution")
        assert done.stdout == "done\n"
        await spying(box)  # it goes on
        assert "solution" not in (await sh(box, "cat /tmp/seen")).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="the freezer takes root, or a delegated control group")
@pytest.mark.parametrize("version", [1, 2])
async def test_a_service_that_wakes_itself_is_held_all_the_same(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    found = host_hierarchies()
    if version == 1:
        found = dataclasses.replace(found, unified=())
        monkeypatch.setattr(limits, "host_hierarchies", lambda: found)
    if not found.unified and "freezer" not in found.by_controller:
        pytest.skip(f"no control group of version {version} can be frozen here")
    async with confined() as box:
        assert box.backend.sandbox.limits.group is not None
        assert box.backend.sandbox.limits.group.can_freeze
        await spying(box, "waking")
        async with box.others_held() as alone:
            await sh(alone, "sleep 0.5", SECRET="solution")
        assert (await sh(box, "grep -l python /proc/[0-9]*/comm | wc -l")).stdout != "0\n"  # held, not ended
        await spying(box, "waking")
        assert "solution" not in (await sh(box, "cat /tmp/seen")).stdout


async def test_a_command_that_is_asked_for_meanwhile_starts_after_it(runtime: ConfinedRuntime) -> None:
    order: list[str] = []

    async def other() -> None:
        await sh(runtime, "true")
        order.append("other")

    async with runtime.others_held() as alone:
        waiting = asyncio.create_task(other())
        await asyncio.sleep(0)
        await sh(alone, "sleep 0.3")
        order.append("alone")
    await waiting
    assert order == ["alone", "other"]


async def test_two_who_want_to_be_alone_take_turns_and_what_was_held_goes_on(runtime: ConfinedRuntime) -> None:
    await runtime.run_background(["sh", "-c", TICKING], {}, "log")

    async def alone() -> list[str]:
        async with runtime.others_held() as view:
            return [(await sh(view, "cat /tmp/tick")).stdout for _ in range(3)]

    async def ticks() -> bool:
        return (await sh(runtime, "cat /tmp/tick")).stdout.strip().isdigit()

    await until(ticks)
    for seen in await asyncio.gather(alone(), alone()):
        assert len(set(seen)) == 1
    before = (await sh(runtime, "cat /tmp/tick")).stdout

    async def went_on() -> bool:
        return (await sh(runtime, "cat /tmp/tick")).stdout != before

    await until(went_on)


async def test_a_sandbox_ends_while_its_processes_are_held() -> None:
    async with confined() as box:
        await box.run_background(["sleep", "1000"], {}, "log")
        async with box.others_held():
            box.backend.cleanup()

"""Promises about the abilities of `rollout_sandbox.interface`: those that a runtime has do what the interface says."""

import inspect
import os
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from unittest import SkipTest

import verifiers.v1 as vf
from verifiers.v1.errors import SandboxError

from rollout_sandbox.compat import abilities_of
from rollout_sandbox.conformance.subject import Subject, runs, shell, until, unused_seconds
from rollout_sandbox.interface import ProgramBatch, ProgramLimits, SandboxAbilities
from rollout_sandbox.toolbox.checked_run import ContainerEngine

ABILITIES = tuple(name for name in vars(SandboxAbilities) if not name.startswith("_"))
Check = Callable[[Subject], Awaitable[None]]
CHECKS: dict[str, Check] = {}
"""The test of each ability, by its name; `tests/sandbox` compares them with `ABILITIES`."""
_LIMITS = ProgramLimits(20.0, 60.0, 256 << 20, 64, 1 << 16)


def checks(*names: str) -> Callable[[Check], Check]:
    """Note a test as the one of these abilities."""

    def note(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return note


def of(box: vf.Runtime, *names: str) -> SandboxAbilities:
    """The sandbox's abilities; the test is skipped where it has none of these names."""
    sandbox = abilities_of(box)
    if all(getattr(type(sandbox), name) is getattr(SandboxAbilities, name) for name in names):
        raise SkipTest(f"it has no `{names[0]}`")
    return sandbox


async def test_each_ability_has_the_form_of_the_interface(subject: Subject) -> None:
    """Write the method or property as `SandboxAbilities` has it: same name, same arguments, async or not."""
    async with subject.box() as box:
        own = type(abilities_of(box))
    for name in ABILITIES:
        theirs, ours = inspect.getattr_static(own, name), inspect.getattr_static(SandboxAbilities, name)
        if callable(ours):
            assert callable(theirs), f"`{name}` is not a method"
            assert list(inspect.signature(theirs).parameters) == list(inspect.signature(ours).parameters), name
            assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(ours), name
        else:
            assert not callable(theirs), f"`{name}` is a method"


@checks("can_end_agent", "mark_agent_start", "end_agent_processes")
async def test_what_an_agent_left_running_ends_at_once_and_an_earlier_service_lives_on(subject: Subject) -> None:
    """Tell the agent's processes from earlier ones outside of the sandbox."""
    service, *numbers = (unused_seconds() for _ in range(3))
    async with subject.box() as box:
        sandbox = of(box, "can_end_agent")
        await box.run_background(["sleep", service], {}, "log")
        await until(partial(runs, box, f"sleep {service}"))
        await sandbox.mark_agent_start()
        await shell(box, "(setsid env -i sleep {} &); sleep {} &".format(*numbers))
        await sandbox.end_agent_processes()
        left = [number for number in numbers if await runs(box, f"sleep {number}")]
        assert not left, f"{len(left)} of {len(numbers)} processes of the agent live"
        assert await runs(box, f"sleep {service}"), "the service was ended, too"


@checks("agents_view")
async def test_a_program_that_is_started_as_the_agents_ends_with_the_agent(subject: Subject) -> None:
    """Have the view mark what is started through it, and `end_agent_processes` kill what carries the mark."""
    number = unused_seconds()
    async with subject.box() as box:
        sandbox = of(box, "agents_view")
        view = sandbox.agents_view()
        assert view is not None
        await sandbox.mark_agent_start()
        await shell(view, f"sleep {number} >/dev/null 2>&1 &")
        await until(partial(runs, box, f"sleep {number}"))
        await sandbox.end_agent_processes()
        assert not await runs(box, f"sleep {number}"), "it lives"


@checks("agent_survived", "limit_kills", "kills_below_limits")
async def test_an_agent_that_ended_in_time_survived_nothing_and_met_no_limit(subject: Subject) -> None:
    """Count what the sandbox's own limits ended, and nothing else."""
    async with subject.box() as box:
        sandbox = of(box, "agent_survived", "limit_kills", "kills_below_limits")
        await sandbox.mark_agent_start()
        await shell(box, "sleep 1000 >/dev/null 2>&1 &")
        await sandbox.end_agent_processes()
        assert not sandbox.agent_survived, "its processes did not outrun their end"
        assert not any((await sandbox.limit_kills()).values()), await sandbox.limit_kills()
        assert sandbox.kills_below_limits() == 0, sandbox.kills_below_limits()


@checks("agent_can_cause")
async def test_a_failure_of_which_nothing_is_known_may_be_the_agents(subject: Subject) -> None:
    """Return False only where the platform, or the way to it, says that it failed."""
    async with subject.box() as box:
        assert of(box, "agent_can_cause").agent_can_cause(SandboxError("a command failed"))


@checks("trusted_python")
async def test_the_trusted_python_is_whole_and_cannot_be_changed_inside(subject: Subject) -> None:
    """Name an interpreter that lies on a read-only mount, with its standard library."""
    async with subject.box() as box:
        python = of(box, "trusted_python").trusted_python
        assert python is not None
        whole = await box.run([python, "-I", "-c", "import ctypes, decimal, json, zlib; print(json.__file__)"], {})
        assert whole.exit_code == 0, whole
        for path in (python, os.path.dirname(python), whole.stdout.strip()):
            assert (await box.run(["test", "-w", path], {})).exit_code != 0, f"{path} can be written inside"


@checks("others_held")
async def test_whatever_else_runs_is_held_still_while_others_are_held(subject: Subject) -> None:
    """Freeze the sandbox's processes, or stop them all, before the view is given; let them go on afterwards."""
    async with subject.box() as box:
        held = of(box, "others_held").others_held()
        assert held is not None
        await box.run_background(["sh", "-c", "i=0; while :; do i=$((i+1)); echo $i >beat; done"], {}, "log")

        async def beat() -> str:
            return (await shell(box, "cat beat 2>/dev/null")).stdout

        await until(beat)
        async with held as alone:
            seen = (await shell(alone, "cat beat; sleep 0.3; cat beat")).stdout.split()
            assert len({*seen}) <= 1, f"it went on from {seen[0]} to {seen[-1]}"
            before = await alone.read("beat")
        await until(partial(_differs, box, before))


async def _differs(box: vf.Runtime, before: bytes) -> bool:
    return await box.read("beat") != before


@checks("read_answer")
async def test_an_answer_is_read_only_where_it_is_a_short_regular_file(subject: Subject) -> None:
    """Open it from outside without following its last link, and look at its kind and size before reading."""
    async with subject.box() as box:
        sandbox = of(box, "read_answer")
        await shell(box, "cd /tmp; printf 12345 >five; ln -s five link; mkfifo pipe; mkdir folder")
        expected = {"five": b"12345", "link": "symlink", "pipe": "not_a_file", "folder": "not_a_file", "no": "absent"}
        for name, found in expected.items():
            assert (read := await sandbox.read_answer(f"/tmp/{name}", 5)) == found, f"{name}: {read!r}"
        assert await sandbox.read_answer("/tmp/five", 4) == "oversized"


@checks("agent_programs")
async def test_a_program_of_a_batch_finds_nothing_of_the_one_before_it(subject: Subject) -> None:
    """Run each in a place of its own, without a network, and make that as new before the next."""
    async with subject.box() as box:
        place = of(box, "agent_programs").agent_programs(_LIMITS)
        assert place is not None
        batch = ProgramBatch(["sh", "-c", "cat; ls; touch mark"], {"given": b""}, ["one\n", "two\n"])
        async with place as programs:
            ends = await programs.run(batch, _LIMITS)
        assert [(end.status, end.out) for end in ends] == [("exit 0", f"{word}\ngiven\n") for word in ("one", "two")]


@checks("agent_code")
async def test_agent_code_is_run_apart_and_is_data_to_the_verify_command(subject: Subject) -> None:
    """Run the program in a sandbox of its own that shows the work directory read-only."""
    async with subject.box() as box:
        offered = of(box, "agent_code").agent_code()
        assert offered is not None
        async with offered as code:
            script = 'cd "$1" && run-agent-code --status status -- sh -c "echo out; ls $1; exit 3"; cat status'
            done = await shell(box, script, code.scratch, PATH=f"{code.tools}:/usr/local/bin:/usr/bin:/bin")
            assert code.failure is None, code.failure
        assert done.stdout.startswith("out\n"), done
        assert "exit 3" in done.stdout, done
        assert "status" not in done.stdout.split(), f"it saw what the verify command has for itself: {done}"


@checks("can_keep_files", "keep_files", "put_files")
async def test_kept_files_are_there_in_another_sandbox(subject: Subject) -> None:
    """Keep all that can be written, with kinds, modes and times, and make it anew where nothing has run."""
    show = 'cd "$HOME" && cat deep/file && readlink link && stat -c "%a %Y" deep/file'
    with tempfile.TemporaryDirectory() as folder:
        async with subject.box() as box:
            sandbox = of(box, "can_keep_files")
            await shell(box, 'cd "$HOME" && mkdir deep && echo text >deep/file && chmod 640 deep/file && ln -s to link')
            before = await shell(box, show)
            kept, _ = await sandbox.keep_files(Path(folder), None, 1 << 30)
            assert kept.bytes > 0, kept
        async with subject.box() as other:
            await abilities_of(other).put_files(Path(folder))
            assert await shell(other, show) == before


@checks("is_this_machine")
async def test_a_runtime_says_whether_its_files_are_this_machines(subject: Subject) -> None:
    """Return True from `is_this_machine` where commands see the root directory of this process."""
    async with subject.box() as box:
        seen, host = (await shell(box, "stat -c '%d %i' /")).stdout.split(), os.stat("/")
        shared = seen == [str(host.st_dev), str(host.st_ino)]
        assert abilities_of(box).is_this_machine == shared, f"its root {'is' if shared else 'is not'} the host's"


@checks("container")
async def test_the_engine_of_a_container_knows_it_and_its_files(subject: Subject) -> None:
    """Give the engine's program on this machine and the container's id."""
    async with subject.box() as box:
        found = abilities_of(box).container
        if found is None:
            raise SkipTest("it is not a container of this machine")
        engine = ContainerEngine(*found)
        assert await engine.is_running(), f"{found} does not run"
        await box.write("/tmp/file", b"here")
        assert await engine.regular_file("/tmp/file", 10) == b"here"
    assert not await engine.is_running(), "it runs although the sandbox is removed"

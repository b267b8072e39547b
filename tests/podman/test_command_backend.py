"""A runtime of three methods keeps the promises of a sandbox: the sample of `interface.py` does, as it stands there."""

import asyncio
import contextlib
import importlib
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any
from unittest import SkipTest

import pytest
from rollout_sandbox import interface
from rollout_sandbox.command_backend import CommandBackend
from rollout_sandbox.compat import Runtime, start_process
from rollout_sandbox.conformance import test_abilities, test_commands, test_network
from rollout_sandbox.conformance.subject import Subject, runs, shell, unused_seconds
from verifiers.v1.errors import SandboxError

from tests.sandbox.test_conformance import PROMISES
from tests.support.user_home import podman_containers
from tests.support.waiting import until

pytestmark = pytest.mark.podman

ASKED = [
    promise
    for promise in PROMISES
    if promise.__module__ not in (test_abilities.__name__, test_network.__name__)
    or promise is test_abilities.CHECKS["is_this_machine"]
]
"""It has no abilities, and is taken for a remote one."""
WITHOUT_A_LIMIT = {"test_memory_beyond_the_limit", "test_a_fork_bomb_stops", "test_what_fills_the_disk"}
"""Beginnings of the promises about limits, for which its configuration has no options."""


@pytest.fixture(scope="module")
def sample(podman_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The sample, copied into a module."""
    assert interface.__doc__ is not None
    code = interface.__doc__[interface.__doc__.index("    import asyncio") :].partition("\n\n`create`")[0]
    folder = tmp_path_factory.mktemp("sample")
    (folder / "my_package.py").write_text(textwrap.dedent(code))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delitem(sys.modules, "my_package", raising=False)
        yield importlib.import_module("my_package")
        del sys.modules["my_package"]


@contextlib.asynccontextmanager
async def started(backend: CommandBackend) -> AsyncIterator[Runtime]:
    try:
        await backend.start()
        yield backend.bind()
    finally:
        await backend.stop()
        assert backend.name not in podman_containers()


@pytest.mark.usefixtures("sample")
@pytest.mark.parametrize("promise", ASKED, ids=lambda one: one.__name__)
async def test_the_sample_keeps_a_promise(podman_image: str, promise: test_abilities.Check) -> None:
    try:
        await promise(Subject("my_package.MyBackend", {"image": podman_image}))
    except SkipTest:
        assert promise.__name__.startswith(tuple(WITHOUT_A_LIMIT))


async def test_its_class_is_named_and_its_options_stand_in_the_trace(sample: Any) -> None:
    backend = sample.MyBackend(sample.MyConfig())
    assert backend.info.model_dump(exclude_none=True) == {
        "borrowed": False,
        "type": "custom",
        "import_path": "my_package.MyBackend",
        "workdir": "/app",
        "image": "python:3.11-slim",
    }
    with pytest.raises(SandboxError, match="is not started"):
        await backend.bind().run(["true"], {})


async def test_what_the_service_raises_is_a_sandbox_error(sample: Any) -> None:
    backend = sample.MyBackend(sample.MyConfig(image="no-such-image-of-ours"))
    with pytest.raises(SandboxError, match="returned non-zero exit status 125"):
        await backend.start()
    await backend.stop()


async def test_a_container_that_is_removed_meanwhile_is_an_error_and_no_exit_code(
    sample: Any, podman_image: str
) -> None:
    async with started(sample.MyBackend(sample.MyConfig(image=podman_image))) as box:
        task = asyncio.ensure_future(box.run(["sleep", "2011"], {}))
        await until(partial(runs, box, "sleep 2011"))
        await asyncio.to_thread(box.backend.cleanup)
        with pytest.raises(SandboxError, match="is gone, or does not end a command"):
            await task


async def test_a_command_whose_shell_is_ended_inside_has_ended_so_with_all_that_it_started(
    sample: Any, podman_image: str
) -> None:
    number = unused_seconds()
    async with started(sample.MyBackend(sample.MyConfig(image=podman_image))) as box:
        # Its parents: the shell that keeps its output, and the one around that.
        script = f"sleep {number} & kill -9 $PPID $(cut -d' ' -f4 /proc/$PPID/stat); sleep {number}"
        result = await shell(box, script)
        assert result.exit_code == 137, result
        assert not await runs(box, f"sleep {number}")


async def test_a_command_that_prints_without_end_to_the_host_is_ended(sample: Any, podman_image: str) -> None:
    async with started(sample.MyBackend(sample.MyConfig(image=podman_image))) as box:
        async with asyncio.timeout(100):
            result = await shell(box, "exec cat /dev/zero >/proc/$PPID/fd/1")
        assert result.exit_code == 137, result.stderr[:300]
        assert not await runs(box, "cat /dev/zero")


async def test_a_process_whose_opening_is_cancelled_or_fails_is_ended(sample: Any, podman_image: str) -> None:
    class Slow(sample.MyBackend):
        async def open(self, argv: list[str], env: dict[str, str], user: str | None) -> Any:
            process = await super().open(argv, env, user)
            if number in argv:
                await go_on.wait()
                if lost:
                    raise OSError("the answer was lost")
            return process

    number, lost, go_on = unused_seconds(), False, asyncio.Event()
    async with started(Slow(sample.MyConfig(image=podman_image))) as box:
        for start in (box.run, partial(start_process, box)):
            for lost, error in ((False, asyncio.CancelledError), (True, SandboxError)):
                go_on.clear()
                task = asyncio.ensure_future(start(["sleep", number], {}))
                await until(partial(runs, box, f"sleep {number}"))
                if not lost:
                    task.cancel()
                go_on.set()
                with pytest.raises(error):
                    await task
                assert not await runs(box, f"sleep {number}")


async def test_a_start_that_is_cancelled_leaves_no_container(sample: Any, podman_image: str) -> None:
    backend = sample.MyBackend(sample.MyConfig(image=podman_image))
    task = asyncio.ensure_future(backend.start())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backend.name in podman_containers()
    await backend.stop()
    assert backend.name not in podman_containers()


async def test_a_start_that_does_not_wait_when_it_is_cancelled_breaks_a_promise(
    sample: Any, podman_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_commands, "_ANSWER_SECONDS", 5.0)

    class Hasty(sample.MyBackend):
        """Has its container when nobody waits for it any more, and it was removed already."""

        made: list[Any] = []

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.made.append(self)
            self.begun, self.removed, self.over = threading.Event(), threading.Event(), threading.Event()

        async def start(self) -> None:
            await asyncio.to_thread(self.start_late)

        def start_late(self) -> None:
            self.begun.set()
            self.removed.wait()
            try:
                asyncio.run(self.create())
            finally:
                self.over.set()

        def cleanup(self) -> None:
            super().cleanup()
            self.removed.set()

    sample.Hasty = Hasty
    try:
        with pytest.raises(AssertionError, match="processes of this machine name it"):
            await test_commands.test_a_start_that_is_cancelled_leaves_nothing(
                Subject("my_package.Hasty", {"image": podman_image})
            )
    finally:
        for backend in Hasty.made:
            if backend.begun.is_set():
                await until(backend.over.is_set)
            await asyncio.to_thread(backend.cleanup)

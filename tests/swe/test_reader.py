"""The process that reads what agents made: its limits, and that nothing of it is this process's to do."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from opencode_rubrics.errors import ReaderError
from opencode_rubrics.swe.file_tree import TreeError
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.reader import reader

pytestmark = pytest.mark.usefixtures("programs")

SUITE = SweProblem(command="x", parser="tap", fail_to_pass=["one"]).suite


async def judged(log: bytes, cpu_seconds: int) -> dict[str, object]:
    asked = {"record": b"", "recording": False, "secret": "s", "exit_code": 0, "suite": SUITE, "whole": False}
    async with reader(cpu_seconds) as reading:
        return await reading.ask("judge", log=log, foreign={}, **asked)


async def test_a_log_is_read_apart_from_the_event_loop_and_what_it_says_is_cut() -> None:
    log = b"ok 1 - one\n" + b"".join(b"ok 2 - test %d\n" % number for number in range(100_000))
    begun, used = time.thread_time(), os.times().children_user
    found = await judged(log, 60)
    mine, theirs = time.thread_time() - begun, os.times().children_user - used
    assert (found["solved"], found["fixed"], found["states"]) == (True, 1, {})
    assert mine < theirs / 2, (mine, theirs)


async def test_what_takes_too_long_or_too_much_ends_its_reader_alone() -> None:
    with pytest.raises(ReaderError, match="could not be read"):
        await judged(b"ok 1 - a\n" * (4 << 20), 1)
    async with reader() as reading:
        with pytest.raises(ReaderError):
            await reading.ask("__init__", unknown=1)
        with pytest.raises(ReaderError):
            await reading.ask("compare", before=b"", after=b"", row={})
    async with reader() as reading:
        with pytest.raises(TreeError, match="a cut one"):
            await reading.ask("compare", before=b"!", after=b"", row={"named": [], "gold": [], "command": ""})


async def test_a_reader_ends_with_whoever_gave_it_up() -> None:
    async def asking() -> None:
        await judged(b"ok 1 - a\n" * (4 << 20), 60)

    task = asyncio.create_task(asking())
    while not (found := [pid for pid in _children() if b"opencode_rubrics.swe.reading_process" in pid[1]]):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not {pid for pid, _ in found} & {pid for pid, _ in _children()}


def _children() -> list[tuple[str, bytes]]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [(pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in found]

"""Files of a confined sandbox, kept on the host and put into another one: all of them, as they were, none followed."""

import gzip
import os
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rollout_sandbox.confined import ConfinedRuntime
from rollout_sandbox.errors import NotKept
from rollout_sandbox.toolbox.kept_files import INDEX, PACKED, content, entries_of, require_whole
from verifiers.v1.errors import SandboxError

from .conftest import confined

pytestmark = pytest.mark.usefixtures("sandboxes")

MAKE = r"""
cd /app && mkdir -p deep/er empty closed && printf 'a\nb' >deep/er/one && : >none && chmod 4755 none
ln -s /etc/passwd out && ln -s nowhere gone && ln deep/er/one same && mkfifo pipe && printf x >"$(printf 'odd\n\377')"
touch -d @1000000000.5 deep/er/one deep/er && chmod 555 closed && chmod 700 ~ && echo h >~/.rc && echo s >/dev/shm/s
head -c 3000000 /dev/urandom >/tmp/big && echo l >/logs/l && echo r >/run/r
"""
LIST = r"""
for place in /app /tmp /home /logs /dev/shm /run; do
    find "$place" ! -path '/tmp/.vf*' ! -name agent-code -printf '%p %y %m %T@ %s %l %n\n' | sort
    find "$place" -type f -exec md5sum {} +  | sort
done
"""
MOST = 1 << 30


async def listed(made: ConfinedRuntime) -> str:
    """Everything that the sandbox holds, with modes, times, sizes, targets and contents."""
    result = await made.run(["sh", "-c", LIST], {})
    # Directories' sizes are their file system's, and those of the root belong to no known user.
    return "\n".join(line for line in result.stdout.splitlines() if " d " not in line or "/deep" in line)


async def test_files_are_put_into_another_sandbox_as_they_were(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in "123")
    for folder in (first, second, third):
        folder.mkdir()
    async with confined() as made:
        assert (await made.run(["sh", "-c", MAKE], {})).exit_code == 0
        before = await listed(made)
        kept, held = await made.keep_files(first, None, MOST)
        assert kept.bytes == kept.new_bytes > 3_000_000
        assert held > 0
        await made.run(["sh", "-c", "sleep 0.1; echo more >>/app/deep/er/one; rm /app/gone; sleep 0.1"], {})
        await made.keep_files(second, first, MOST)
        later = await listed(made)
        again, _ = await made.keep_files(third, second, MOST)
        assert again.new_bytes == 0
    async with confined() as other:
        await other.put_files(first)
        assert await listed(other) == before
        assert "-r-xr-xr-x" not in before
    async with confined() as other:
        await other.put_files(third)
        assert await listed(other) == later
    contents = {one[0]: one[6] for one in entries_of(second) if one[1] == "f"}
    inodes = {name: os.stat(second / number).st_nlink for name, number in contents.items()}
    assert inodes["/tmp/big"] == 3
    changed = contents["/app/deep/er/one"]
    assert b"".join(content(second, changed)) == b"a\nbmore\n"
    assert [name for name in os.listdir(second) if name.endswith(PACKED)] == [changed]
    assert {name for name in os.listdir(first) if not name.isdigit()} == {INDEX}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("echo x >/app/locked && chmod 0 /app/locked", "/app/locked cannot be read"),
        ("mkdir -m 0 /app/closed", "/app/closed Permission denied"),
        ("truncate -s 600M /app/hole", "more than 536870912"),
        ("seq -f /app/%g 33000 | xargs touch", "files count 54[0-9]{7} bytes, more than 536870912"),
        (
            "for hole in 1 2 3; do truncate -s 400M /app/$hole; done",
            "has files with more than 1073741824 bytes of holes",
        ),
        (
            "d=$(printf %0200d 1); mkdir -p /app/$d/$d; mkdir -m 0 /app/$d/$d/no",
            "^/app/0{95}….{150,200}/no Permission denied$",
        ),
        (
            "cp /bin/sleep $'/app/\\e[31mX'; (setsid /app/*X 600 >/dev/null 2>&1 &); until pgrep X; do :; done",
            ": \ufffd.31mX$",
        ),
        ("python3 -c \"import socket; socket.socket(1).bind(b'/app/s\\xff')\"", "/app/s\ufffd is not a file"),
    ],
)
async def test_what_cannot_be_kept_whole_is_not_kept(tmp_path: Path, made: str, why: str) -> None:
    async with confined() as holder:
        await holder.run(["bash", "-c", made], {})
        with pytest.raises(NotKept, match=why):
            await holder.keep_files(tmp_path, None, MOST >> 1)


GHOST = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


async def test_processes_beside_the_agents_are_named(tmp_path: Path) -> None:
    async with confined() as made:
        await made.run_background(["sh", "-c", "sleep 600 & sleep 601; true"], {}, "/tmp/log")
        while (await made.run(["pgrep", "-c", "sleep"], {})).stdout != "2\n":
            pass
        await made.run(["sh", "-c", "(setsid tail -f /dev/null >/dev/null 2>&1 &); until pgrep tail; do :; done"], {})
        with pytest.raises(NotKept, match=r"^processes ran beside the agent's program: sleep, tail$") as raised:
            await made.keep_files(tmp_path, None, MOST)
        assert raised.type is NotKept, "nobody waits for what is not a child of the agent's program"
    assert list(tmp_path.iterdir()) == []


async def test_a_process_whose_first_thread_has_ended_ends_nothing_that_runs(tmp_path: Path) -> None:
    async with confined() as made:
        await made.run_background(["sh", "-c", 'sleep 600 & python3 -c "$0"; true', GHOST], {}, "/tmp/log")
        while (await made.run(["sh", "-c", "grep -E ') Z ([^ ]+ ){16}2 ' /proc/[0-9]*/stat"], {})).exit_code != 0:
            pass
        with pytest.raises(NotKept, match=r"processes ran beside the agent's program: python3|held still"):
            await made.keep_files(tmp_path, None, MOST)
        assert (await made.run(["pgrep", "sleep"], {})).exit_code == 0


def test_a_file_that_changed_just_now_is_sent_again_by_the_next_keeping(tmp_path: Path) -> None:
    """It may change once more within the same tick of its time stamps."""
    source = (files("rollout_sandbox.programs") / "list_and_send.py").read_text()
    program: dict[str, Any] = {"__name__": "list_and_send"}
    exec(source.removesuffix("main()\n"), program)
    (tmp_path / "file").touch()
    found = (tmp_path / "file").stat()
    for passed, stamped in ((10_000_000, False), (60_000_000, True)):
        program["time"] = SimpleNamespace(time_ns=lambda passed=passed: found.st_ctime_ns + passed)
        assert bool(program["entry"](str(tmp_path / "file"), found, program["FileListing"]())[-1]) == stamped


async def test_holes_take_no_disk_where_they_are_kept_and_where_they_are_put(tmp_path: Path) -> None:
    async with confined() as made:
        await made.run(["sh", "-c", "truncate -s 100M /app/hole; echo end >>/app/hole; sleep 0.1"], {})
        await made.keep_files(tmp_path, None, MOST)
    (name,) = [one[6] for one in entries_of(tmp_path) if one[0] == "/app/hole"]
    assert (tmp_path / name).stat().st_blocks < 4096
    async with confined() as other:
        await other.put_files(tmp_path)
        result = await other.run(["sh", "-c", "stat -c '%s %b' /app/hole; tail -c 4 /app/hole"], {})
    size, blocks, end = result.stdout.split()
    assert (size, end) == (f"{(100 << 20) + 4}", "end")
    assert int(blocks) < 4096


async def test_a_folder_that_is_not_whole_is_the_sandboxes_error(tmp_path: Path) -> None:
    async with confined() as made:
        await made.keep_files(tmp_path, None, MOST)
    require_whole(tmp_path)
    (tmp_path / INDEX).write_bytes(gzip.compress(b"[]" * 999)[:-9])
    async with confined() as other:
        with pytest.raises(SandboxError, match="kept files"):
            await other.put_files(tmp_path)
    os.mkfifo(tmp_path / "999")
    (tmp_path / "secret").write_bytes(b"12345")
    (tmp_path / "998").symlink_to("secret")
    (tmp_path / "997").mkdir()
    for damaged in (
        '["/app/x", "f", 420, 0, 5, "", "9999"',
        "[]",
        '{"a": 1}',
        '["/app/x", "f", 420, 0, 5, "", "9999"]',
        '["/app/x", "f", 420, 0, 5, "", "../../../../../../etc/passwd"]',
        '["/app/x", "f", 420, 0, 5, "", "999"]',
        '["/app/x", "f", 420, 0, 5, "", "998"]',
        '["/app/x", "f", 420, 0, 5, "", "997/../secret"]',
    ):
        (tmp_path / INDEX).write_bytes(gzip.compress(damaged.encode()))
        with pytest.raises(ValueError, match="kept files are not whole"):
            require_whole(tmp_path)
        async with confined() as other:
            with pytest.raises(SandboxError, match="kept files"):
                await other.put_files(tmp_path)

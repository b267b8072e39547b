"""A program's descriptors are given back with it."""

import os
import signal
import sys
from pathlib import Path

import pytest
from opencode_env.tool_backends import connection
from opencode_env.tool_backends.connection import ServerProgram, piped

from tests.support.waiting import until

_LEAVES_A_CHILD = "import subprocess, sys; open(sys.argv[1], 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
"""Which holds the program's stdout."""


@pytest.mark.usefixtures("programs")
async def test_what_a_program_leaves_running_does_not_hold_its_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_REAP_SECONDS", 0.1)
    monkeypatch.setattr(connection, "_GRACE_SECONDS", 0.1)
    before, child = _pipes(), tmp_path / "pid"
    with Path(os.devnull).open("w") as stderr:
        async with piped(ServerProgram([sys.executable, "-c", _LEAVES_A_CHILD, str(child)], os.environ, stderr)):
            assert _pipes() > before

            async def left() -> bool:
                return child.exists() and child.read_text() != ""

            await until(left)

    async def closed() -> bool:
        return _pipes() <= before

    try:
        await until(closed)
    finally:
        os.kill(int(child.read_text()), signal.SIGTERM)


def _pipes() -> int:
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and os.readlink(link).startswith(("pipe:", "socket:")) for link in links)

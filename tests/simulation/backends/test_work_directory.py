"""The directory of a program's instance ends with it, and with a process that is killed."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from opencode_env.tool_backends.description import BackendServerConfig
from opencode_env.tool_backends.work_directory import work_directory

from tests.support.waiting import until

KILLED = """
import asyncio
from pathlib import Path
from tests.simulation.backends.test_work_directory import BACKEND
from opencode_env.tool_backends.work_directory import work_directory

async def stay():
    async with work_directory(BACKEND, Path(".")) as directory:
        (directory / "data" / "note").write_text("x")
        print(directory, flush=True)
        await asyncio.sleep(600)

asyncio.run(stay())
"""
BACKEND = BackendServerConfig.model_validate(
    {"backend_name_ref": "notes", "orchestration_mode": "local_program", "command": ["true"]}
)


async def test_a_directory_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    async with work_directory(BACKEND, tmp_path) as directory:
        assert directory.stat().st_mode & 0o077 == 0
        assert (directory / "data").is_dir()
    assert not directory.exists()


@pytest.mark.usefixtures("programs")
async def test_a_killed_process_leaves_no_directory(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert killed.stdout is not None
    directory = Path((await killed.stdout.readline()).decode().strip())
    assert directory.is_relative_to(tmp_path)
    assert (directory / "data" / "note").is_file()
    killed.send_signal(signal.SIGKILL)
    await killed.wait()
    await until(lambda: not list(tmp_path.iterdir()))

"""The directory of a program's instance ends with it, and with a process that is killed."""

import asyncio
from pathlib import Path

import pytest
from opencode_env.tool_backends.description import BackendServerConfig
from opencode_env.tool_backends.local import work_directory

from tests.support.programs import running
from tests.support.waiting import until

KILLED = """
import asyncio
from pathlib import Path
from opencode_env.tool_backends.description import BackendServerConfig
from opencode_env.tool_backends.local import work_directory

async def stay():
    async with work_directory(BackendServerConfig.model_validate(%s), Path(".")) as directory:
        (directory / "data" / "note").write_text("x")
        print(directory, flush=True)
        await asyncio.sleep(600)

asyncio.run(stay())
"""
FIELDS = {"backend_name_ref": "notes", "orchestration_mode": "local_program", "command": ["true"]}


async def test_a_directory_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    async with work_directory(BackendServerConfig.model_validate(FIELDS), tmp_path) as directory:
        assert directory.stat().st_mode & 0o077 == 0
        assert (directory / "data").is_dir()
    assert not directory.exists()


@pytest.mark.usefixtures("programs")
async def test_a_killed_process_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, temporary = tmp_path / "stays.py", tmp_path / "temporary"
    program.write_text(KILLED % FIELDS)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with running(str(program)) as (killed, output):
        directory = Path((await asyncio.to_thread(output.readline)).strip())
        assert directory.is_relative_to(temporary)
        assert (directory / "data" / "note").is_file()
        killed.kill()
        await until(lambda: not list(temporary.iterdir()))

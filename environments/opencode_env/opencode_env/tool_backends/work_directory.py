"""The host directory of one instance, with its copy of the template data.

It lies in a directory that only this user can enter; inside, everybody may write, as a container runs as who it likes.
It is removed at the end of its instance, and should this process be killed, by a shell that waits for that.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from agent_sandbox.at_exit import remove_at_exit
from verifiers.v1.errors import ToolsetError

from opencode_env.tool_backends.description import BackendServerConfig


@contextlib.asynccontextmanager
async def work_directory(backend: BackendServerConfig, base: Path) -> AsyncIterator[Path]:
    """A fresh directory with `data` in it; removed on exit.

    Raises:
        ToolsetError: the template cannot be copied.
    """
    directory = Path(_prefix() + uuid.uuid4().hex)
    directory.mkdir(mode=0o700)
    try:
        await asyncio.to_thread(make_data, directory / "data", backend, base)
        yield directory
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


@functools.cache
def _prefix() -> str:
    """The beginning of the paths of this process's directories; starts the shell that removes them, once."""
    prefix = f"{tempfile.gettempdir()}/vf-backend-{uuid.uuid4().hex}-"
    remove_at_exit(prefix)
    return prefix


def make_data(data: Path, backend: BackendServerConfig, base: Path) -> None:
    """Make the directory `data`: the template's copy, or empty.

    Raises:
        ToolsetError: the template cannot be copied.
    """
    if backend.template_data_path_host is None:
        data.mkdir()
        return
    template = host_path(backend.template_data_path_host, base)
    try:
        shutil.copytree(template, data, symlinks=True)
    except (OSError, shutil.Error) as error:
        why = f"{template} cannot be copied: {error}"
        raise ToolsetError(f"tool backend {backend.backend_name_ref!r}: {why}") from error
    for path in (data, *data.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o777 if path.is_dir() else 0o666))


def host_path(given: str, base: Path) -> Path:
    """A path of the file on this machine."""
    return base / os.path.expanduser(given)


def log_tail(log: Path) -> str:
    """The end of what a server said on its stderr."""
    try:
        return log.read_text(errors="replace")[-1000:].strip()
    except OSError:
        return ""

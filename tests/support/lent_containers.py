"""Podman containers that tests use one after another: starting and removing one costs more than most of the tests.

Invariant: a container that is lent again has its image's files, and no living process but its first. It is put right
from outside, with no program of its own, or else removed. To whoever had it, it is gone.
"""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from rollout_sandbox.podman import PodmanBackend
from rollout_sandbox.podman.container import Container, ContainerOptions

from tests.support.processes import alive

_OPAQUE = "trusted.overlay.opaque"
"""Marks a directory that hides the image's."""
_MOST_ZOMBIES = 50
"""They count for the container's limit."""


@dataclass(frozen=True)
class _Idle:
    """A container that nobody uses."""

    name: str
    id: str
    pid: int
    directory: Path
    mounts: dict[Path, object]


_idle: defaultdict[ContainerOptions, list[_Idle]] = defaultdict(list)


class LentContainer(Container):
    """A container that others had before, where one with the same options is idle."""

    whole_id = ""
    _before: _Idle | None = None
    _mounts: dict[Path, object] | None = None

    async def start(self) -> None:
        if idle := _idle[self.options]:
            self._before = idle.pop()
            self.name = self._before.name
            shutil.rmtree(self._before.directory)
        await super().start()
        self._mounts = self._before.mounts if self._before else _mounted(self.pid)

    async def _run(self) -> str:
        if self._before is None:
            self.whole_id = await super()._run()
        else:
            assert self._directory is not None
            (self._directory / "pid").write_text(str(self.pid or self._before.pid))
            self.whole_id = self._before.id
        return self.whole_id

    def remove(self) -> None:
        with self._removing:
            if self._created and self._directory and self._mounts and self.lives and self._is_put_right():
                _idle[self.options].append(_Idle(self.name, self.whole_id, self.pid, self._directory, self._mounts))
                self.name += "-lent-no-more"
                self._created, self._directory = False, None
        super().remove()

    def _is_put_right(self) -> bool:
        if os.geteuid() != 0 or self.options != ContainerOptions(self.options.image, self.options.workdir):
            return False
        try:
            zombies = _end_processes(self.pid)
            _restore(self.pid, _image_files(self.options.image))
            return zombies < _MOST_ZOMBIES and _mounted(self.pid) == self._mounts
        except (OSError, subprocess.CalledProcessError):
            return False


class LentBackend(PodmanBackend):
    """A podman container as a rollout's, borrowed."""

    container_class = LentContainer


class QuickContainer(LentContainer):
    """A borrowed one in which commands cost less: `lent_podman` starts them."""

    async def start(self) -> None:
        await super().start()
        for name in (self.name, self.id) if shutil.which("runc") else ():
            _registered(name).write_text(f"{self.whole_id} {self.pid}\n")

    def remove(self) -> None:
        for name in filter(None, (self.name, self.id)):
            _registered(name).unlink(missing_ok=True)
        super().remove()


class QuickBackend(LentBackend):
    """The same, where podman itself is not the promise."""

    container_class = QuickContainer


def _registered(name: str) -> Path:
    return Path(os.environ["LENT_CONTAINERS"], name)


@contextlib.contextmanager
def lending() -> Iterator[None]:
    """Lend containers while the body runs, and remove them after it."""
    with tempfile.TemporaryDirectory(prefix="lent-containers-") as directory, pytest.MonkeyPatch.context() as patch:
        if podman := shutil.which("podman"):
            patch.setenv("REAL_PODMAN", podman)
            patch.setenv("LENT_CONTAINERS", directory)
            patch.setenv("PATH", str(Path(__file__).with_name("lent_podman")), prepend=os.pathsep)
        try:
            yield
        finally:
            _remove_idle()


def _remove_idle() -> None:
    """Remove the containers that nobody uses."""
    idle = [one for same in _idle.values() for one in same]
    images = {options.image for options in _idle}
    _idle.clear()
    if idle:
        subprocess.run(["podman", "rm", "--force", "--volumes", *(one.name for one in idle)], capture_output=True)
    for one in idle:
        shutil.rmtree(one.directory)
    for image in images:
        subprocess.run(["podman", "image", "unmount", image], check=False, capture_output=True)
    _image_files.cache_clear()


@cache
def _image_files(image: str) -> Path:
    done = subprocess.run(["podman", "image", "mount", image], check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())


def _end_processes(pid: int) -> int:
    """End all but process 1, and say how many zombies are left, of which that takes no notice."""
    inside = os.readlink(f"/proc/{pid}/ns/pid")

    def others() -> Iterator[int]:
        for other in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):
                if other != pid and os.readlink(f"/proc/{other}/ns/pid") == inside:
                    yield other

    while living := [other for other in others() if alive(other)]:
        for other in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)
        time.sleep(0.002)
    return sum(1 for _ in others())


def _mounts(pid: int) -> dict[str, str]:
    """The options of what is mounted in the container, by place; and what else podman makes when it starts one."""
    fields = [line.split(" ") for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    return {line[4]: line[-1] for line in fields} | {"/etc/mtab": ""}


def _mounted(pid: int) -> dict[Path, object]:
    """What the container could change of what is mounted in it; /dev/shm is emptied."""
    root = Path(f"/proc/{pid}/root")
    for path in (root / "dev/shm").iterdir():
        _remove(path)
    points = [root / point[1:] for point in _mounts(pid) if point.startswith(("/etc/", "/run/"))]
    seen = {path: path.lstat() for path in (*points, *(root / "dev").iterdir(), *(root / "dev/mqueue").iterdir())}
    return {
        path: (found.st_mode, found.st_uid, path.read_bytes() if stat.S_ISREG(found.st_mode) else b"")
        for path, found in seen.items()
    }


def _restore(pid: int, image: Path) -> None:
    """Undo what differs from the image: what the upper layer of the container's file system holds."""
    mounts, root = _mounts(pid), Path(f"/proc/{pid}/root")
    upper = Path(next(one for one in mounts["/"].split(",") if one.startswith("upperdir=")).partition("=")[2])
    for folder, folders, files in os.walk(upper):
        within = Path(folder).relative_to(upper)
        for name in [*folders, *files]:
            changed, original, live = (place / within / name for place in (upper, image, root))
            if f"/{within / name}" in mounts:
                continue
            if _is_directory(changed) and _is_directory(original) and _OPAQUE not in os.listxattr(changed):
                shutil.copystat(original, live)
                os.chown(live, original.stat().st_uid, original.stat().st_gid)
                continue
            if name in folders:
                folders.remove(name)
            if os.path.lexists(live):
                _remove(live)
            if os.path.lexists(original):
                subprocess.run(["cp", "-a", original, live], check=True)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path) -> None:
    if _is_directory(path):
        shutil.rmtree(path)
    else:
        path.unlink()

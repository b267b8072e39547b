"""Who may write into a folder that all nodes share: each try to play a rollout has a claim, and a later one takes over.

A claim is named by its driver. It is over when that driver has lost the try, or has ended: no clock is asked, and no
node that may be cut off.
"""

import asyncio
import itertools
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rollout_sandbox.file_lock import is_locked, private_directory, try_lock
from verifiers.v1.errors import EnvError

from opencode_env.errors import ClusterError, NodeLostError

CLAIM = ".claim-"
"""How the name of a claim begins; in a folder of that name lies what its try has not finished writing."""
_DRIVER = ".driver-"


@dataclass(frozen=True)
class Claim:
    """The claim of one try, where it is played."""

    name: str
    ended: Sequence[str]
    """The drivers that had been killed when it began, and so not one that begins later."""
    lost: Sequence[str]
    """The claims of tries that its driver had lost by then."""
    tell: Callable[[Sequence[Any]], object]
    """Has the driver be told of a turn that was kept."""

    def kept(self, place: Path, restorable: bool) -> None:
        """Have a turn that was kept there be counted."""
        self.tell([self.name, str(place), restorable])

    def may_follow(self, mark: Path) -> bool:
        """Whether this try may write where the claim with that folder did: that claim is over, or is its own."""
        driver = _driver(mark.name)
        if driver == _driver(self.name):
            return mark.name in (self.name, *self.lost)
        return driver in self.ended or not _token(mark).exists()


def driver_lives(mark: Path) -> bool:
    """Whether the driver of the claim with that folder still runs, as a process on the driver's machine sees it."""
    return is_locked(_token(mark))


def _token(mark: Path) -> Path:
    return mark.parent.parent / f"{_DRIVER}{_driver(mark.name)}"


def _driver(claim: str) -> str:
    return claim.removeprefix(CLAIM).partition("-")[0]


class Disk(Protocol):
    """Limits what all tries keep."""

    running: set[Path]

    def added(self, place: Path, restorable: bool) -> None: ...


class Claims:
    """The claims of this process's tries, whose driver it is; `disk` is what they keep in `folder`."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder, self._disk = folder, disk
        self._driver = secrets.token_hex(8)
        self.token = folder / f"{_DRIVER}{self._driver}"
        """A file by which a node shows that it sees the folder; it is locked from its beginning until this process has
        ended, at its own end it is taken away."""
        self._lost, self._numbers = list[str](), itertools.count(1)
        self._folders: dict[str, Path] = {}

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Be a living driver.

        Raises:
            ClusterError: the folder cannot be made or written.
        """
        new = self.token.with_name(f".new{self.token.name}")  # another driver never sees it without its lock
        try:
            private_directory(self._folder)
            lock = try_lock(new)
            assert lock is not None
            new.rename(self.token)
        except OSError as error:
            raise ClusterError(f"--env.turns.keep: {error}: name a folder that can be made and written") from None
        try:
            yield
        finally:
            self.token.unlink(missing_ok=True)
            os.close(lock)

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[dict[str, Any]]:
        """Have a try be played, with the claim that its worker is told; a `NodeLostError` says that it was lost.

        Raises:
            EnvError: the folder cannot be looked at.
        """
        name = f"{CLAIM}{self._driver}-{next(self._numbers)}"
        try:
            ended = await asyncio.to_thread(self._ended)
        except OSError as error:
            raise EnvError(f"--env.turns.keep: {error}") from error
        try:
            yield {"name": name, "ended": ended, "lost": [*self._lost]}
        except NodeLostError:
            self._lost.append(name)
            raise
        finally:
            folder = self._folders.pop(name, None)
            if folder is not None and name not in self._lost:
                self._disk.running.discard(folder)

    def kept(self, told: Sequence[Any]) -> None:
        """Count a turn that a try has kept, as `Claim.kept` told it (blocking)."""
        name, place, restorable = told
        self._folders[name] = Path(place).parent
        self._disk.running.add(Path(place).parent)
        self._disk.added(Path(place), restorable)

    def _ended(self) -> list[str]:
        tokens = self._folder.glob(f"{_DRIVER}*")
        return [token.name.removeprefix(_DRIVER) for token in tokens if not is_locked(token)]

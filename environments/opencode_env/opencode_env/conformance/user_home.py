"""A place of its own from which the real `vf-eval` command is run, as a user would.

Whatever a run of a home starts or writes can be told by the home's path (home, temporary directory, working
directory lie below it), so that `leftovers` means this home and nothing else on the machine.
"""

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from opencode_rubrics.cache import cache_root
from verifiers.v1.episode import WireEpisode
from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import TRACES_FILE, read_episodes

from opencode_env.scripted_model import MODEL_ID

VF_EVAL = Path(sys.executable).with_name("vf-eval")
_NOT_OURS = ("PRIME_", "VF_", "UV_", "OPENCODE_", "VIRTUAL_ENV", "PYTHON")


class ExecutedProgram(subprocess.Popen[bytes]):
    """A program, executed with all its variables."""

    def __init__(self, argv: Sequence[str], directory: Path, environment: Mapping[str, str], error: IO[bytes]) -> None:
        nothing = subprocess.DEVNULL
        super().__init__(
            argv, stdin=nothing, stdout=nothing, stderr=error, cwd=directory, env=environment, start_new_session=True
        )

    async def ended(self) -> int:
        while (code := self.poll()) is None:  # noqa: ASYNC110 - no loop of this process waits for its children
            await asyncio.sleep(0.02)
        return code


@dataclass(frozen=True)
class FinishedEvaluation:
    """Holds what one `vf-eval` left behind."""

    exit_code: int
    log: str
    """Everything on standard error."""
    directory: Path
    log_file: Path
    """Where that is."""

    @property
    def episodes(self) -> Sequence[WireEpisode]:
        """The saved episodes, in the order in which they ended."""
        return read_episodes(self.directory, WireTrace) if (self.directory / TRACES_FILE).exists() else []

    def episode(self, task_id: str) -> WireEpisode:
        (found,) = [episode for episode in self.episodes if episode.task.data.id == task_id]
        return found

    def trace(self, task_id: str) -> WireTrace:
        (found,) = self.episode(task_id).traces
        return found

    def error(self, task_id: str) -> str:
        """Type and message of the error that ended a task's episode."""
        episode = self.episode(task_id)
        error = episode.errors[-1] if episode.errors else episode.traces[-1].last_error
        assert error is not None, f"{task_id} has no error"
        return f"{error.type}: {error.message}"

    @property
    def ports(self) -> Sequence[int]:
        """The ports on which the run's interception listened."""
        return [int(port) for port in re.findall(r"interception up: url=http://[^:\s]+:(\d+)", self.log)]

    @property
    def lines(self) -> Sequence[str]:
        return [line for line in self.log.splitlines() if "rollout finished: " in line]


class RunningEvaluation:
    """A started `vf-eval`."""

    def __init__(self, process: ExecutedProgram, directory: Path, log: Path) -> None:
        self.process = process
        self.directory = directory
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    async def finish(self, seconds: float = 600.0) -> FinishedEvaluation:
        """Wait for its end: no run takes a minute on a quiet machine."""
        async with asyncio.timeout(seconds):
            code = await self.process.ended()
        return FinishedEvaluation(code, self.log, self.directory, self._log)


class UserHome:
    """A home, a temporary directory and a working directory below `root`, which nothing else uses; `python_path` has
    plugins that the run finds by their ids."""

    start: ClassVar[Callable[[Sequence[str], Path, Mapping[str, str], IO[bytes]], Any]] = ExecutedProgram
    """What starts programs, given arguments, directory, variables and standard error."""

    def __init__(self, root: Path, python_path: Sequence[Path] = ()) -> None:
        self.root = root
        self.python_path = python_path
        self.work = root / "work"
        self.temporary = root / "tmp"
        self.home = root / "home"
        for directory in (self.work, self.temporary, self.home):
            directory.mkdir(parents=True, exist_ok=True)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """This process's environment without keys and settings, for a user who lives at this home."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
        python_path = os.pathsep.join(map(str, self.python_path))
        places = {"HOME": str(self.home), "TMPDIR": str(self.temporary), "PYTHONPATH": python_path}
        return {**kept, **places, "OPENCODE_ENV_CACHE": str(cache_root()), **(extra or {})}

    @contextlib.asynccontextmanager
    async def running(
        self, name: str, base_url: str, *arguments: str, env: Mapping[str, str] | None = None, program: Path = VF_EVAL
    ) -> AsyncIterator[RunningEvaluation]:
        """A started `vf-eval`, or another installation's `program`; killed on exit should it still run. The run's name
        is unique at this home; the arguments are those beyond model, endpoint and output, `env` goes over
        `environment`."""
        argv = [str(program), *arguments, "-m", MODEL_ID, "--client.base-url", base_url, "--no-push", "--no-rich"]
        argv += ["--output-dir", str(self.root / "runs"), "--run.name", name]
        log = self.root / f"{name}.log"
        with log.open("wb") as stderr:
            process = await asyncio.to_thread(UserHome.start, argv, self.work, self.environment(env), stderr)
        try:
            yield RunningEvaluation(process, self.root / "runs" / name, log)
        finally:
            process.kill()
            await process.ended()

    async def run(
        self, name: str, base_url: str, *arguments: str, env: Mapping[str, str] | None = None, program: Path = VF_EVAL
    ) -> FinishedEvaluation:
        async with self.running(name, base_url, *arguments, env=env, program=program) as evaluation:
            return await evaluation.finish()

    def processes(self) -> dict[int, str]:
        """Command line by pid of every live process that belongs to this home, those in its sandboxes included."""
        found, root = {}, os.fsencode(self.root)
        mounts: dict[str, bool] = {}  # whether the root is among those of a namespace, which many processes share
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                command = _of_process(pid, "cmdline")
                if not command:
                    continue
                if root not in command and root not in _of_process(pid, "environ"):
                    namespace = os.readlink(f"/proc/{pid}/ns/mnt")
                    if namespace not in mounts:
                        mounts[namespace] = root in _of_process(pid, "mountinfo")
                    if not mounts[namespace]:
                        continue
                found[int(pid)] = command.replace(b"\0", b" ").decode(errors="replace")[:200]
        return found

    def sandboxes(self) -> list[Path]:
        return sorted(self.home.glob(".cache/verifiers/runtimes/confined-on-*/[!.]*"))

    def leftovers(self) -> list[str]:
        """Return what of this home still runs, and what its runs left in their temporary and sandbox directories."""
        left = [f"process {pid}: {command}" for pid, command in self.processes().items()]
        return left + [str(path) for path in (*self.sandboxes(), *self.temporary.iterdir())]


def _of_process(pid: str, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
        return file.readall()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_closed(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0

"""`Tbench2Environment`: one Terminal-Bench 2 task at a time, for an OpenEnv client.

Wrong use raises an error that names it, and so does a failure of the infrastructure; a command that fails is an
observation with its exit code. Nothing outside of the tasks' directory is read, whatever a caller or a link says, and
what scores is never in the sandbox before `evaluate`. No name that a caller gives, and no link that another user of
this machine plants, leads out of the directory of session logs.
"""

import asyncio
import contextlib
import hashlib
import http.client
import logging
import lzma
import os
import re
import shutil
import stat
import tempfile
import threading
import urllib.request
import zipfile
import zlib
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import verifiers.v1 as vf
from opencode_env.check_tasks.check import TaskSandbox
from opencode_env.taskset import OpenCodeTask, OpenCodeTasksetConfig
from opencode_env.taskset.folders import CONFIG_FILE, read_folder, task_directories
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.row import nearest_name
from openenv.core.env_server.interfaces import Environment
from rollout_sandbox.file_lock import locked
from rollout_sandbox.told import without_credentials
from verifiers.v1.runtimes import RuntimeConfig, SubprocessConfig

from opencode_openenv.tbench2.models import ActionType, Tbench2Action, Tbench2Observation, Tbench2State
from opencode_openenv.tbench2.settings import DEFAULT_SESSION, Tbench2Settings, read_settings, sandboxes_of
from opencode_openenv.tbench2.terminals import CommandOutput, Terminals

_CHECKSUM = re.compile(r"(?P<url>.+)#sha256=(?P<digest>[0-9a-f]{64})")
MAX_DOWNLOAD_BYTES = 2 << 30
MAX_UNPACKED_BYTES = 8 << 30


def find_task(settings: Tbench2Settings, task_id: object, task_path: object) -> Path:
    """The directory of a task (blocking: it may download); a `ValueError` where the tasks' directory has none."""
    root = settings.tasks_dir or downloaded_benchmark(settings.repo_url, settings.cache_dir)
    if not root.is_dir():
        raise ValueError(f"tasks_dir {str(root)!r} is not a directory: set TB2_TASKS_DIR to the folder of the tasks")
    if not task_id and not task_path:
        raise ValueError(f"reset needs a task_id or a task_path; {nearest_name('', _names(root))}")
    given, name = ("task_path", task_path) if task_path else ("task_id", task_id)
    if not isinstance(name, str) or "\0" in name:
        raise ValueError(f"{given} is {name!r}, which names no directory")
    wanted = Path(name)
    folder = root / wanted
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{given} {str(wanted)!r} leads out of the tasks' directory, which is {str(root)!r}")
    if not (folder / CONFIG_FILE).is_file():
        raise ValueError(
            f"there is no task {str(wanted)!r} in {str(root)!r}; {nearest_name(wanted.name, _names(root))}"
        )
    return folder


def read_task(folder: Path) -> OpenCodeTask:
    """The task of a directory; a `DatasetError` where it cannot be honoured here."""
    config = OpenCodeTasksetConfig(dataset=str(folder))
    return OpenCodeTask(RowMapper(config).task_data(read_folder(folder, folder, 1)), config.task)


def _names(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in task_directories(root)]


def downloaded_benchmark(repo_url: str | None, cache: Path) -> Path:
    """The directory of the unpacked archive (blocking); a `ValueError` where it is not the one that is named."""
    if repo_url is None:
        raise ValueError(
            "there are no tasks: set TB2_TASKS_DIR to a checkout of Terminal-Bench 2, or TB2_REPO_URL to the URL of a "
            "zip archive of one commit with its checksum, as https://…/COMMIT.zip#sha256=HEX"
        )
    found = _CHECKSUM.fullmatch(repo_url)
    if found is None:
        shown = without_credentials(repo_url)
        raise ValueError(f"TB2_REPO_URL {shown!r} names no checksum, and what it serves may change: append #sha256=HEX")
    url, digest = found["url"], found["digest"]
    made = cache / digest
    if not made.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f".{digest}.lock"):
            if not made.is_dir():
                for left in cache.glob(f".{digest}-*"):  # by a process that was killed
                    shutil.rmtree(left)
                with tempfile.TemporaryDirectory(dir=cache, prefix=f".{digest}-") as scratch:
                    _unpacked(url, digest, Path(scratch)).rename(made)
    entries = [path for path in made.iterdir() if path.is_dir()]
    return entries[0] if len(entries) == 1 else made


def _unpacked(url: str, digest: str, scratch: Path) -> Path:
    shown, archive, unpacked = without_credentials(url), scratch / "archive.zip", scratch / "unpacked"
    try:
        with urllib.request.urlopen(url, timeout=120.0) as answer, archive.open("w+b") as file:
            while block := answer.read(1 << 20):
                file.write(block)
                if file.tell() > MAX_DOWNLOAD_BYTES:
                    raise ValueError(f"it is larger than {MAX_DOWNLOAD_BYTES} bytes")
            file.seek(0)
            got = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ValueError(f"TB2_REPO_URL {shown} cannot be downloaded: {error}") from error
    if got != digest:
        raise ValueError(f"TB2_REPO_URL {shown} serves an archive with the checksum {got}, not {digest}")
    unpacked.mkdir()
    try:
        with zipfile.ZipFile(archive) as packed:
            _unpack(packed, unpacked)
    # RuntimeError: an encrypted archive, an unknown compression. OSError: a file where another has a directory.
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, OSError) as error:
        raise ValueError(f"TB2_REPO_URL {shown} serves no sound zip archive: {error}") from error
    return unpacked


def _unpack(packed: zipfile.ZipFile, target: Path) -> None:
    if sum(member.file_size for member in packed.infolist()) > MAX_UNPACKED_BYTES:
        raise ValueError(f"the archive of TB2_REPO_URL unpacks to more than {MAX_UNPACKED_BYTES >> 30} GiB")
    for member in packed.infolist():
        if member.filename.startswith("/") or ".." in member.filename.split("/"):
            raise ValueError(f"the archive of TB2_REPO_URL holds {member.filename!r}, which leads out of it")
        mode = member.external_attr >> 16
        if not stat.S_ISLNK(mode):
            place = packed.extract(member, target)
            os.chmod(place, 0o755 if member.is_dir() or mode & 0o111 else 0o644)


WRITE_FILE_SECONDS = 120.0
logger = logging.getLogger("verifiers.v1.opencode_openenv")
MAX_LOG_BYTES = 16 << 20
"""The most that one log may hold."""


def plain_name(text: str) -> str:
    """Return at most 100 characters for a file's name, of the first 1,000 of a text."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text[:1000]).strip(".-")[:100] or "unnamed"


class SessionLog:
    """The directory of one episode's logs; raises `ValueError` where it cannot be made, or is another user's."""

    def __init__(self, output_dir: Path, task_id: str, episode_id: str) -> None:
        self.directory = output_dir / f"{plain_name(task_id)}.{plain_name(episode_id)}"
        self._names: set[str] = set()
        try:
            output_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)
            os.close(self._opened())
        except OSError as error:
            raise ValueError(f"session logs cannot be written: {error}: set TB2_OUTPUT_DIR (output_dir)") from error

    def add(self, session: str, command: str, output: str) -> None:
        """Append what a session was told and what it printed, as long as the log is not full and can be written."""
        name = plain_name(session)
        if name not in self._names and len(self._names) >= 64:
            name = "further-sessions"
        self._names.add(name)
        text = f"$ {command[:10_000]}\n{output}" + ("" if output.endswith("\n") or not output else "\n")
        # Not blocking: a FIFO is refused instead of waited for.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.ExitStack() as opened:
            try:
                directory = self._opened()
                opened.callback(os.close, directory)
                file = opened.enter_context(open(os.open(f"{name}.log", flags, 0o600, dir_fd=directory), "wb"))
                if os.fstat(file.fileno()).st_size <= MAX_LOG_BYTES:
                    file.write(text.encode(errors="replace"))
            except OSError as error:
                logger.warning("session logs below %s cannot be written: %s", self.directory, error)

    def _opened(self) -> int:
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(directory).st_uid != os.geteuid():
            os.close(directory)
            raise PermissionError(f"{self.directory} is another user's")
        return directory


async def _write_file(box: TaskSandbox, path: str, content: str) -> None:
    """Write a file of the sandbox, with its parents; a `ValueError` where it takes no content, as a FIFO."""
    absolute = path if path.startswith("/") else f"{box.workdir}/{path}"
    parent = absolute.rpartition("/")[0] or "/"
    try:
        async with asyncio.timeout(WRITE_FILE_SECONDS):
            await box.agents.run(["mkdir", "-p", "--", parent], {})
            await box.agents.write(absolute, content.encode())
    except TimeoutError as error:
        raise ValueError(f"{path!r} could not be written within {WRITE_FILE_SECONDS:g} s") from error


ResultT = TypeVar("ResultT")


@cache
def own_loop() -> asyncio.AbstractEventLoop:
    """A running event loop: OpenEnv calls from any thread, and a sandbox belongs to the loop that started it."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tbench2", daemon=True).start()
    return loop


def submit(work: Coroutine[Any, Any, ResultT]) -> "Future[ResultT]":
    """Run `work` in `own_loop`; cancelling the future cancels it."""
    return asyncio.run_coroutine_threadsafe(work, own_loop())


class Tbench2Environment(Environment[Tbench2Action, Tbench2Observation, Tbench2State]):
    """A task's sandbox, step by step.

    Args:
        tasks_dir: folder of task directories; None is `TB2_TASKS_DIR`, else the downloaded benchmark.
        output_dir: where session logs go; None is `TB2_OUTPUT_DIR`.
        command_timeout_s: seconds that a blocking command has; None is 20 in the local sandbox, 300 in a container.
        safe_mode: accepted and without effect: every command is in the sandbox, whatever it does there.
        mode: `local` (the confined sandbox), `docker` or `podman`; None is `TB2_MODE`.
        runtime: as `--env.agent.runtime.*`, instead of `mode`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        tasks_dir: str | Path | None = None,
        output_dir: str | Path | None = None,
        command_timeout_s: float | None = None,
        safe_mode: bool = False,
        mode: str | None = None,
        runtime: RuntimeConfig | None = None,
    ) -> None:
        super().__init__()
        self._settings = read_settings(tasks_dir, output_dir, command_timeout_s, mode, runtime)
        self._state = Tbench2State(episode_id=str(uuid4()))
        self._resources = AsyncExitStack()
        self._box: TaskSandbox | None = None
        self._terminals: Terminals
        self._over = False
        """Whether it is scored, or was to be: nothing more is done for the agent then."""
        self._log: SessionLog

    @property
    def state(self) -> Tbench2State:
        return self._state

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Tbench2Observation:
        """Begin a task: `task_id` (or `task_name`), or `task_path` (or `path`) below the tasks' directory.

        A `ValueError` for wrong use, or a task that cannot be honoured here; a `RolloutError` where its sandbox could
        not be made ready.
        """
        return submit(self._reset(episode_id, options)).result()

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> Tbench2Observation:
        return await asyncio.wrap_future(submit(self._reset(episode_id, options)))

    def step(self, action: Tbench2Action, timeout_s: float | None = None, **options: Any) -> Tbench2Observation:
        """One action; a `ValueError` for wrong use, a `RolloutError` where the sandbox is gone or nothing can be
        scored."""
        return submit(self._step(action, timeout_s)).result()

    async def step_async(
        self, action: Tbench2Action, timeout_s: float | None = None, **options: Any
    ) -> Tbench2Observation:
        return await asyncio.wrap_future(submit(self._step(action, timeout_s)))

    def close(self) -> None:
        if self._box is not None:
            self._warn_of_loss()
            submit(self._end()).result()

    async def _reset(self, episode_id: str | None, options: dict[str, Any]) -> Tbench2Observation:
        task_id, task_name = options.pop("task_id", None), options.pop("task_name", None)
        task_path, path = options.pop("task_path", None), options.pop("path", None)
        if options:
            raise ValueError(f"reset takes task_id, task_path and episode_id, not {', '.join(sorted(options))}")
        await self._end()
        folder = await asyncio.to_thread(find_task, self._settings, task_id or task_name, task_path or path)
        task = await asyncio.to_thread(read_task, folder)
        episode_id = episode_id or str(uuid4())
        name = str(task_id or task_name or folder.name)
        self._log = SessionLog(self._settings.output_dir, name, episode_id)
        image = task.data.image
        if image is not None and isinstance(self._settings.runtime, SubprocessConfig):
            raise vf.TaskError(
                f"task {task.data.id} asks for image {image!r}, which the local sandbox cannot give: set TB2_MODE to "
                "docker or podman"
            )
        self._box = await self._resources.enter_async_context(sandboxes_of(self._settings.runtime).box(task))
        self._terminals, self._over = Terminals(self._box.agents), False
        self._state = Tbench2State(
            episode_id=episode_id, task_id=name, task_path=str(folder), session_id=DEFAULT_SESSION, terminal_ready=True
        )
        assert task.data.tests is not None
        limits = {
            "verifier_timeout_sec": task.data.tests.timeout,
            "command_timeout_s": self._settings.command_timeout_s,
            "docker_image": image,
        }
        return self._observation(action_type="reset", instruction=str(task.data.prompt), info=limits, reward=0.0)

    async def _step(self, action: Tbench2Action, timeout_s: float | None) -> Tbench2Observation:
        if self._box is None and action.action_type is ActionType.CLOSE:
            # As the last step of every caller's loop, also after evaluate.
            return self._observation(action_type="close", done=True)
        if self._box is None or self._over:
            raise ValueError("there is no task in progress: call reset first")
        if timeout_s is not None:
            action = action.model_copy(update={"metadata": {**action.metadata, "timeout_s": timeout_s}})
        session = action.session_id or DEFAULT_SESSION
        state = self._state
        state.step_count += 1
        state.last_action_type, state.last_command, state.session_id = action.action_type, action.command, session
        try:
            observation = await self._act(self._box, action, session)
        except asyncio.CancelledError:
            self._warn_of_loss()
            await self._end()
            raise
        observation.action_type, observation.session_id = action.action_type.value, session
        state.last_output = observation.output
        self._log.add(session, f"{action.action_type} {action.command or action.file_path}", observation.output)
        return observation

    async def _act(self, box: TaskSandbox, action: Tbench2Action, session: str) -> Tbench2Observation:
        match action.action_type:
            case ActionType.EXEC:
                return await self._exec(action, session)
            case ActionType.WRITE:
                await self._terminals.write(session, action.command)
            case ActionType.VIEW:
                return self._seen(await self._terminals.view(session))
            case ActionType.WAIT:
                seconds = 5.0 if action.wait_seconds is None else action.wait_seconds
                return self._seen(await self._terminals.view(session, seconds))
            case ActionType.KILL:
                return self._seen(await self._terminals.kill(session))
            case ActionType.WRITE_FILE:
                if not action.file_path:
                    raise ValueError("write_file needs a file_path")
                await _write_file(box, action.file_path, action.content)
            case ActionType.EVALUATE:
                return await self._evaluate(box)
            case ActionType.CLOSE:
                await self._end()
                return self._observation(done=True)
        return self._observation()

    async def _exec(self, action: Tbench2Action, session: str) -> Tbench2Observation:
        if not action.command.strip():
            raise ValueError("exec needs a command")
        if not action.block:
            await self._terminals.start(session, action.command)
            return self._observation(info={"exit_code": None})
        limit = self._settings.command_timeout_s
        asked = action.metadata.get("timeout_s")
        limit = min(limit, asked) if isinstance(asked, int | float) and asked > 0 else limit
        ran = await self._terminals.run(action.command, limit)
        if ran.exit_code is None:
            error = f"the command did not end within {limit:g} s and was ended (command_timeout_s)"
            return self._observation(output=ran.output, success=False, error=error, info={"exit_code": None})
        return self._seen(ran)

    async def _evaluate(self, box: TaskSandbox) -> Tbench2Observation:
        self._over = True
        try:
            await self._terminals.end_all()
            trace = await box.score()
        finally:
            await self._end()
        run, reward = trace.info["tests"], float(trace.reward)
        info = {
            "tests_passed": reward >= 1.0,
            "exit_code": run.get("exit_code"),  # None if the test script never ran
            "docker_image": box.task.data.image,
            "problem": str(run["problem"]),
            "warning": str(run["warning"]),
        }
        output = "".join(str(run.get(name, "")) for name in ("stdout", "stderr"))
        return self._observation(output=output, info=info, reward=reward, done=True)

    def _warn_of_loss(self) -> None:
        logger.warning("task %r ended without a score: its caller is gone", self._state.task_id)

    async def _end(self) -> None:
        self._box = None
        self._state.terminal_ready = False
        # An episode that begins before this is over has resources of its own.
        ended, self._resources = self._resources, AsyncExitStack()
        await ended.aclose()

    def _seen(self, ran: CommandOutput) -> Tbench2Observation:
        return self._observation(output=ran.output, info={"exit_code": ran.exit_code})

    def _observation(self, **fields: Any) -> Tbench2Observation:
        state = self._state
        given = {"task_id": state.task_id, "task_path": state.task_path, "session_id": state.session_id}
        return Tbench2Observation(**given, **fields)

"""`Tbench2Environment`: one Terminal-Bench 2 task at a time, for an OpenEnv client.

Invariant: wrong use raises an error that names it, and so does a failure of the infrastructure; a command that fails is
an observation with its exit code. Only `evaluate` gives a reward, and it ends the episode.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment

from opencode_openenv.tbench2.episode import Episode
from opencode_openenv.tbench2.models import ActionType, Tbench2Action, Tbench2Observation, Tbench2State
from opencode_openenv.tbench2.place import Place
from opencode_openenv.tbench2.session_log import SessionLog
from opencode_openenv.tbench2.settings import DEFAULT_SESSION, read_settings
from opencode_openenv.tbench2.task_directory import find_task, read_task
from opencode_openenv.tbench2.terminals import Ran

ResultT = TypeVar("ResultT")
logger = logging.getLogger("verifiers.v1.opencode_openenv")


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
        place: any other sandbox, instead of `mode`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        tasks_dir: str | Path | None = None,
        output_dir: str | Path | None = None,
        command_timeout_s: float | None = None,
        safe_mode: bool = False,
        mode: str | None = None,
        place: Place | None = None,
    ) -> None:
        super().__init__()
        self._settings = read_settings(tasks_dir, output_dir, command_timeout_s, mode, place)
        self._state = Tbench2State(episode_id=str(uuid4()))
        self._episode: Episode | None = None
        self._log: SessionLog

    @property
    def state(self) -> Tbench2State:
        """Where the episode stands."""
        return self._state

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Tbench2Observation:
        """Begin a task: `task_id` (or `task_name`), or `task_path` (or `path`) below the tasks' directory.

        Raises:
            ValueError: there is no such task, an option is unknown, or the task cannot be honoured here.
            RolloutError: its sandbox could not be started or made ready.
        """
        return submit(self._reset(episode_id, options)).result()

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> Tbench2Observation:
        """As `reset`."""
        return await asyncio.wrap_future(submit(self._reset(episode_id, options)))

    def step(self, action: Tbench2Action, timeout_s: float | None = None, **options: Any) -> Tbench2Observation:
        """One action.

        Raises:
            ValueError: wrong use; the message names it.
            RolloutError: the sandbox is gone, or nothing can be scored.
        """
        return submit(self._step(action, timeout_s)).result()

    async def step_async(
        self, action: Tbench2Action, timeout_s: float | None = None, **options: Any
    ) -> Tbench2Observation:
        """As `step`."""
        return await asyncio.wrap_future(submit(self._step(action, timeout_s)))

    def close(self) -> None:
        """Remove the sandbox; idempotent."""
        if self._episode is not None:
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
        episode = Episode(task, self._settings.place)
        await episode.start()
        self._episode = episode
        self._state = Tbench2State(
            episode_id=episode_id, task_id=name, task_path=str(folder), session_id=DEFAULT_SESSION, terminal_ready=True
        )
        assert task.data.tests is not None
        limits = {
            "verifier_timeout_sec": task.data.tests.timeout,
            "command_timeout_s": self._settings.command_timeout_s,
            "docker_image": task.data.image,
        }
        return self._observation(action_type="reset", instruction=str(task.data.prompt), info=limits, reward=0.0)

    async def _step(self, action: Tbench2Action, timeout_s: float | None) -> Tbench2Observation:
        if self._episode is None and action.action_type is ActionType.CLOSE:
            # As the last step of every caller's loop, also after evaluate.
            return self._observation(action_type="close", done=True)
        if self._episode is None or self._episode.over:
            raise ValueError("there is no task in progress: call reset first")
        if timeout_s is not None:
            action = action.model_copy(update={"metadata": {**action.metadata, "timeout_s": timeout_s}})
        session = action.session_id or DEFAULT_SESSION
        state = self._state
        state.step_count += 1
        state.last_action_type, state.last_command, state.session_id = action.action_type, action.command, session
        try:
            observation = await self._act(self._episode, action, session)
        except asyncio.CancelledError:
            self._warn_of_loss()
            await self._end()
            raise
        observation.action_type, observation.session_id = action.action_type.value, session
        state.last_output = observation.output
        self._log.add(session, f"{action.action_type} {action.command or action.file_path}", observation.output)
        return observation

    async def _act(self, episode: Episode, action: Tbench2Action, session: str) -> Tbench2Observation:
        match action.action_type:
            case ActionType.EXEC:
                return await self._exec(episode, action, session)
            case ActionType.WRITE:
                await episode.terminals.write(session, action.command)
            case ActionType.VIEW:
                return self._seen(await episode.terminals.view(session))
            case ActionType.WAIT:
                seconds = 5.0 if action.wait_seconds is None else action.wait_seconds
                return self._seen(await episode.terminals.view(session, seconds))
            case ActionType.KILL:
                return self._seen(await episode.terminals.kill(session))
            case ActionType.WRITE_FILE:
                if not action.file_path:
                    raise ValueError("write_file needs a file_path")
                await episode.write_file(action.file_path, action.content)
            case ActionType.EVALUATE:
                return await self._evaluate(episode)
            case ActionType.CLOSE:
                await self._end()
                return self._observation(done=True)
        return self._observation()

    async def _exec(self, episode: Episode, action: Tbench2Action, session: str) -> Tbench2Observation:
        if not action.command.strip():
            raise ValueError("exec needs a command")
        if not action.block:
            await episode.terminals.start(session, action.command)
            return self._observation(info={"exit_code": None})
        limit = self._settings.command_timeout_s
        asked = action.metadata.get("timeout_s")
        limit = min(limit, asked) if isinstance(asked, int | float) and asked > 0 else limit
        ran = await episode.terminals.run(action.command, limit)
        if ran.exit_code is None:
            error = f"the command did not end within {limit:g} s and was ended (command_timeout_s)"
            return self._observation(output=ran.output, success=False, error=error, info={"exit_code": None})
        return self._seen(ran)

    async def _evaluate(self, episode: Episode) -> Tbench2Observation:
        try:
            score = await episode.evaluate()
        finally:
            await self._end()
        info = {
            "tests_passed": score.reward >= 1.0,
            "exit_code": score.exit_code,
            "docker_image": episode.task.data.image,
            "problem": score.problem,
            "warning": score.warning,
        }
        return self._observation(output=score.output, info=info, reward=score.reward, done=True)

    def _warn_of_loss(self) -> None:
        logger.warning("task %r ended without a score: its caller is gone", self._state.task_id)

    async def _end(self) -> None:
        episode, self._episode = self._episode, None
        self._state.terminal_ready = False
        if episode is not None:
            await episode.close()

    def _seen(self, ran: Ran) -> Tbench2Observation:
        return self._observation(output=ran.output, info={"exit_code": ran.exit_code})

    def _observation(self, **fields: Any) -> Tbench2Observation:
        state = self._state
        given = {"task_id": state.task_id, "task_path": state.task_path, "session_id": state.session_id}
        return Tbench2Observation(**given, **fields)

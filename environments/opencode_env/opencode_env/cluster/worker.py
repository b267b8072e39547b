"""What runs on a node: one process with one environment, which plays the episodes that it is handed.

What crosses is JSON, and an episode as verifiers' environment servers write it; nothing is pickled but bytes.
"""

import asyncio
import contextlib
import hashlib
import json
import math
import os
import pkgutil
import platform
import time
import traceback
from collections.abc import AsyncIterator, Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.env import EnvConfig
from verifiers.v1.env import Env
from verifiers.v1.serve.delta import DeltaStreamer, dump, pack
from verifiers.v1.serve.types import RunRequest
from verifiers.v1.trace import Trace
from verifiers.v1.utils.generic import concrete_type

from opencode_env.cluster.claims import Claim
from opencode_env.errors import ClusterError
from opencode_env.own_packages import OWN_PACKAGES

_NEWS_SECONDS = 2.0
"""So often a driver is told which turns were kept."""
_SHOWN_SECONDS = 6.0
"""So often it is told how traces have grown: each time costs it 1.5 ms of CPU, a tenth of a rollout."""


def versions() -> dict[str, str]:
    """Return what must be the same on all machines: Python's version, and of verifiers and each distribution of this
    project its version with a digest of its files, as two trees of sources may have one version."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name, packages in {"verifiers": ("verifiers",), **OWN_PACKAGES}.items():
        try:
            found[name] = f"{version(name)} (files {digest(packages)})"
        except PackageNotFoundError:
            found[name] = "none"
    return found


def digest(packages: Iterable[str]) -> str:
    """Return a digest of these packages' files; OpenCode's pinned version, rows and pages are among them."""
    digest = hashlib.sha256()
    for spec in filter(None, map(find_spec, packages)):
        for folder in map(Path, spec.submodule_search_locations or ()):
            for file in sorted(folder.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    digest.update(f"{spec.name}/{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:10]


class Worker:
    """Holds the environment on a node, from `start` to `stop`."""

    def __init__(self) -> None:
        self._serving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._playing = set[asyncio.Task[Any]]()

    async def start(self, order: bytes) -> bytes:
        """Build and start the environment that the driver describes; the answer says where this is, or what is wrong.

        `order` is JSON: `versions`, `cwd`, `token` (a file of the driver's in a folder of all nodes, or None), `files`
        (paths that must be there), `env` (variables), `cpus`, `kind` (module and name of the environment's class) and
        `config`.
        """
        answer = self.where()
        try:
            asked, here = json.loads(order), versions()
            # Before anything that another release may say otherwise.
            if wrong := [name for name, other in asked["versions"].items() if here.get(name) != other]:
                told = [f"{name} {here.get(name)} instead of {asked['versions'][name]}" for name in wrong]
                raise ClusterError(f"it has {', '.join(told)}")
            await self.begin(asked)
        except Exception as error:  # noqa: BLE001 - the driver says it
            answer["refused"] = f"{type(error).__name__}: {error}"
        return json.dumps(answer).encode()

    def where(self) -> dict[str, Any]:
        """Return where this is."""
        return {"pid": os.getpid()}

    async def begin(self, asked: dict[str, Any]) -> None:
        """Start the environment that an order describes, or raise what is wrong."""
        if asked["token"] is not None and not (token := Path(asked["token"])).exists():
            raise FileNotFoundError(f"--env.turns.keep: {token.parent} is not one that it shares with the driver")
        if missing := [file for file in asked["files"] if not Path(file).exists()]:
            raise FileNotFoundError(f"local files must lie there too, at the same place: {', '.join(missing)}")
        os.environ.update(asked["env"])
        os.environ["MATHVERDICT_WORKERS"] = str(math.ceil(asked["cpus"]))
        if Path(asked["cwd"]).is_dir():  # relative paths of the configuration
            os.chdir(asked["cwd"])
        kind: Any = pkgutil.resolve_name(asked["kind"])
        config = (concrete_type(kind, EnvConfig, origin=Env) or EnvConfig).model_validate(asked["config"])
        self._env: Env[Any] = kind(config)
        started = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve(self._env, started))
        await started

    async def _serve(self, env: Env[Any], started: asyncio.Future[None]) -> None:
        # One task enters and leaves: cancel scopes demand it.
        try:
            async with env.serving():
                started.set_result(None)
                await self._stopping.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def play(self, request: bytes) -> AsyncIterator[tuple[str, bytes]]:
        """Play one episode of a task, and show how its traces grow.

        `request` is JSON: `run` (a `RunRequest`), `env` (variables) and `claim` (of `Claims.playing`, or None). Yields
        `delta`, every six seconds: a packed change of a trace, as an environment server streams it, to look at;
        `kept`, what `Claims.kept` takes, packed; at last `episode`, the packed whole, or `failed`, why there is none.
        No exception, which an engine would pickle.
        """
        env, live, changed = self._env, list[Trace[Any, Any, Any]](), asyncio.Event()
        news: list[tuple[str, bytes]] = []

        def minted(trace: Trace[Any, Any, Any]) -> None:
            live.append(trace)
            trace.watch(lambda _: changed.set())

        async def send(delta: dict[str, Any]) -> None:
            news.append(("delta", pack(delta)))

        streamer = DeltaStreamer(lambda: live, send)
        try:
            given = json.loads(request)
            os.environ.update(given["env"])
            asked = RunRequest.model_validate(given["run"])
            kind = type(env.taskset).task_type()
            task: Any = kind(kind.data_type().model_validate(asked.task_data), env.config.taskset.task)
            context = ModelContext(client=asked.client, model=asked.model, sampling=asked.sampling)
            if given["claim"]:
                task.claim = Claim(**given["claim"], tell=lambda turn: news.append(("kept", pack(turn))))
            playing = asyncio.create_task(env.run_episode(task, context, on_trace=minted, on_discard=live.remove))
            self._playing.add(playing)
            playing.add_done_callback(self._playing.discard)
            try:
                ended, shown = set[asyncio.Task[Any]](), time.monotonic()
                while not ended:
                    ended, _ = await asyncio.wait([playing], timeout=_NEWS_SECONDS)
                    if changed.is_set() and not ended and time.monotonic() - shown >= _SHOWN_SECONDS:
                        changed.clear()
                        shown = time.monotonic()
                        # Half a surrogate, or a number of no 64 bits: the whole has none any more.
                        with contextlib.suppress(Exception):
                            await streamer.flush()
                    while news:
                        yield news.pop(0)
            finally:
                if not playing.cancelling():  # `stop` may have had it
                    playing.cancel()
                await asyncio.wait([playing])
            yield "episode", await asyncio.to_thread(lambda: pack(dump(playing.result())))
        except Exception as error:  # noqa: BLE001 - the driver says it
            told = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            yield "failed", told.encode(errors="replace")

    async def stopping(self) -> None:
        """Return when it is to stop; whoever waits for it learns at once that this process has ended."""
        await self._stopping.wait()

    async def stop(self) -> None:
        """Stop the environment; episodes, what it serves, and its hooks of the end, are over afterwards."""
        for playing in self._playing:
            if not playing.cancelling():  # one that was dropped cleans up already
                playing.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        self._stopping.set()
        if self._serving is not None:
            await self._serving

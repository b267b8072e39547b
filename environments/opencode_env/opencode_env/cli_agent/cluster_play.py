"""How an environment hands its episodes to a cluster, and takes them back."""

import hashlib
import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from verifiers.v1.clients import ModelContext
from verifiers.v1.env import Env
from verifiers.v1.episode import EnvInfo, Episode
from verifiers.v1.errors import EnvError
from verifiers.v1.serve import env_config_data
from verifiers.v1.serve.delta import LIST_FIELDS
from verifiers.v1.serve.types import RunRequest
from verifiers.v1.task import Task
from verifiers.v1.trace import Error, TraceTask, WireTrace

from opencode_env.cli_agent.features import Feature
from opencode_env.cli_agent.traces import AnyTrace, agent_record, describe_failure, describe_rollout, shorten_tasks
from opencode_env.cluster.config import ClusterConfig
from opencode_env.cluster.driver import Cluster
from opencode_env.cluster.worker import versions
from opencode_env.compat import take_fields
from opencode_env.errors import ClusterError

logger = logging.getLogger("verifiers.v1.opencode_env")
Watcher = Callable[[AnyTrace], None]


def require_fit(features: Iterable[Feature], *, capped: bool) -> None:
    """Refuse what several workers cannot do together.

    Raises:
        ValueError: a feature needs one process, or the model calls of a run are counted.
    """
    reasons = [reason for feature in features if (reason := feature.one_process())]
    reasons += ["a cap (--env.cap.*) is counted by one process"] if capped else []
    if reasons:
        advice = "leave that out, or play in one process (without --env.cluster)"
        raise ValueError(f"--env.cluster.type ray plays in several processes: {'; '.join(reasons)}: {advice}")


def cluster_of(env: Env[Any], features: Iterable[Feature], box_memory: int | None) -> Cluster | None:
    """The cluster that plays an environment's episodes, not joined yet; None: this process plays them.

    Raises:
        ClusterError: its engine is not installed; or a variable to be passed is not set.
    """
    options: ClusterConfig = env.config.cluster
    if options.type == "none":
        return None
    from opencode_env.cluster.ray_engine import RayEngine

    if missing := [name for name in options.pass_env if name not in os.environ]:
        raise ClusterError(f"--env.cluster.pass-env names what is not set here: {', '.join(missing)}")
    kind = type(env)
    order = {
        "versions": versions(),
        "cwd": str(Path.cwd()),
        "files": files_read(env.config),
        "env": {name: os.environ[name] for name in options.pass_env} | _keys(env.config),
        "cpus": options.cpus,
        "kind": f"{kind.__module__}:{kind.__qualname__}",
        "config": {name: value for name, value in env_config_data(env.config).items() if name != "cluster"},
        "sandbox_memory": box_memory and box_memory * options.per_worker,
        "memory": options.memory and int(options.memory),
    }
    urls = [value for name, value in _settings(env.config) if name.endswith("url") and isinstance(value, str)]
    source = hashlib.sha256(json.dumps(order).encode()).hexdigest()[:16]
    claims = next(filter(None, (feature.claims() for feature in features)), None)
    order["token"] = claims and str(claims.token)
    return Cluster(options, RayEngine(options), json.dumps(order).encode(), urls, claims, source)


def files_read(config: BaseModel) -> list[str]:
    """Return the local files and folders of a configuration that whoever plays reads: not the dataset, which is the
    driver's, nor what is written (`…_dir`)."""
    paths = [
        path for name, path in _settings(config) if isinstance(path, Path) and not name.endswith(("dataset", "_dir"))
    ]
    return [str(path.absolute()) for path in paths if path.exists()]


def _settings(config: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of a configuration, at every depth; values of a mapping have its own name too."""
    if isinstance(config, BaseModel):
        for field, value in config:
            yield from _settings(value, field)
    elif isinstance(config, dict):
        for key, value in config.items():
            yield from _settings(value, f"{name}.{key}")
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _settings(value, name)
    else:
        yield name, config


def _keys(config: BaseModel) -> dict[str, str]:
    """The variables with keys of the endpoints in a configuration, as far as this process has them."""
    names = [value for name, value in _settings(config) if name.startswith(("api_key_var", "headers_from_env."))]
    return {name: os.environ[name] for name in names if name in os.environ}


class Watched:
    """Shows whoever watches how the traces of an episode grow that is played elsewhere."""

    def __init__(self, on_trace: Watcher | None, on_discard: Watcher | None) -> None:
        self._on_trace = on_trace or (lambda trace: None)
        self._on_discard = on_discard or (lambda trace: None)
        self._shown: list[AnyTrace] = []

    def change(self, delta: dict[str, Any]) -> None:
        """Take up a change, as `DeltaStreamer` tells it; what it repairs in earlier nodes comes with the whole."""
        name, fields = delta["trace"], delta.get("set", {})
        trace = next((one for one in self._shown if one.id == name), None)
        if delta.get("discard"):
            if trace is not None:
                self._shown.remove(trace)
                self._on_discard(trace)
            return
        head = delta.get("open", {}) if trace is None else {"task": trace.task, "agent": trace.agent}
        part = WireTrace.model_validate({**head, **fields, **{one: delta.get(one, []) for one in LIST_FIELDS}})
        if trace is None:
            self._shown.append(part)
            self._on_trace(part)
            return
        for field in LIST_FIELDS:
            getattr(trace, field).extend(getattr(part, field))
        take_fields(trace, part, fields)
        trace.notify()

    def end(self, trace: AnyTrace) -> AnyTrace:
        """The object that was shown, with all that a finished trace has."""
        shown = next((one for one in self._shown if one.id == trace.id), None)
        if shown is None:
            self._on_trace(trace)
            return trace
        take_fields(shown, trace, WireTrace.model_fields)
        shown.notify()
        return shown


async def play_on(
    cluster: Cluster,
    env_id: str,
    task: Task[Any, Any, Any],
    ctx: ModelContext,
    progress: Callable[[], str],
    on_trace: Watcher | None = None,
    on_discard: Watcher | None = None,
) -> Episode[Any, Any, Any]:
    """One episode, played on a node; its watchers see it grow every six seconds. A lost worker is its error.

    Raises:
        ClusterError: no worker can be started, or the endpoint is this machine's alone.
    """
    episode: Episode[Any, Any, Any]
    node = ""
    data = task.data.model_dump(mode="json", serialize_as_any=True)
    run = RunRequest(task_data=data, client=ctx.client, model=ctx.model, sampling=ctx.sampling).model_dump(mode="json")
    started, watched = time.monotonic(), Watched(on_trace, on_discard)
    try:
        async with nullcontext() if cluster.claims is None else cluster.claims.playing() as claim:
            request = json.dumps({"run": run, "env": _keys(ctx.client), "claim": claim}).encode()
            episode, node = await cluster.play(request, ctx.client.base_url, watched.change)
    except ClusterError:
        raise
    except EnvError as error:
        told = Error(type=type(error).__name__, message=str(error), traceback=traceback.format_exc())
        recorded: TraceTask[Any] = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        episode = Episode(env=EnvInfo(id=env_id), task=recorded, errors=[told])
        shorten_tasks(episode)
    episode.traces = [watched.end(trace) for trace in episode.traces]
    for trace in episode.traces:
        record = agent_record(trace)
        record["node"] = node
        logger.info(
            "%s%s", describe_rollout(trace, record.get("rollout_seconds", time.monotonic() - started)), progress()
        )
    if episode.errors:
        logger.warning("%s", describe_failure(episode))
    return episode

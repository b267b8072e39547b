"""How an environment hands its episodes to a cluster, and takes them back."""

import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from verifiers.v1.clients import ModelContext
from verifiers.v1.env import Env
from verifiers.v1.episode import EnvInfo, Episode
from verifiers.v1.errors import EnvError
from verifiers.v1.serve import env_config_data
from verifiers.v1.serve.types import RunRequest
from verifiers.v1.task import Task
from verifiers.v1.trace import Error, TraceTask

from opencode_env.cli_agent.features import Feature
from opencode_env.cli_agent.traces import AnyTrace, agent_record, describe_failure, describe_rollout, shorten_tasks
from opencode_env.cluster.config import ClusterConfig
from opencode_env.cluster.driver import Cluster
from opencode_env.cluster.worker import versions
from opencode_env.errors import ClusterError

logger = logging.getLogger("verifiers.v1.opencode_env")


def require_fit(features: Iterable[Feature], *, capped: bool) -> None:
    """Refuse what several workers cannot do together.

    Raises:
        ValueError: a feature needs one process, or the model calls of a run are counted.
    """
    reasons = [reason for feature in features if (reason := feature.one_process())]
    reasons += ["a cap (--env.cap.*) is counted by one process"] if capped else []
    if reasons:
        raise ValueError(f"--env.cluster.type ray plays in several processes: {'; '.join(reasons)}")


def cluster_of(env: Env[Any], box_memory: int | None) -> Cluster | None:
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
    config = {name: value for name, value in env_config_data(env.config).items() if name != "cluster"}
    order = {
        "versions": versions(),
        "cwd": str(Path.cwd()),
        "env": {name: os.environ[name] for name in options.pass_env} | _keys(config),
        "cpus": options.cpus,
        "kind": f"{kind.__module__}:{kind.__qualname__}",
        "config": config,
        "sandbox_memory": box_memory and box_memory * options.per_worker,
        "memory": options.memory and int(options.memory),
    }
    urls = [value for name, value in _settings(config) if name.endswith("url") and isinstance(value, str)]
    return Cluster(options, RayEngine(options), json.dumps(order).encode(), urls)


def _settings(config: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of a dumped configuration, at every depth."""
    if isinstance(config, dict):
        for inner, value in config.items():
            yield inner, value
            yield from _settings(value, inner)
    elif isinstance(config, list):
        for value in config:
            yield name, value
            yield from _settings(value, name)


def _keys(config: Any) -> dict[str, str]:
    """The variables with keys of the endpoints in a dumped configuration, as far as this process has them."""
    names = [value for name, value in _settings(config) if name == "api_key_var"]
    names += [one for name, value in _settings(config) if name == "headers_from_env" for one in value.values()]
    return {name: os.environ[name] for name in names if name in os.environ}


async def play_on(
    cluster: Cluster,
    env_id: str,
    task: Task[Any, Any, Any],
    ctx: ModelContext,
    progress: Callable[[], str],
    on_trace: Callable[[AnyTrace], None] | None = None,
    on_discard: object = None,
) -> Episode[Any, Any, Any]:
    """One episode, played on a node; its traces are told of when it is over. A lost worker is the episode's error.

    Raises:
        ClusterError: no worker can be started, or the endpoint is this machine's alone.
    """
    episode: Episode[Any, Any, Any]
    node = ""
    data = task.data.model_dump(mode="json", serialize_as_any=True)
    run = RunRequest(task_data=data, client=ctx.client, model=ctx.model, sampling=ctx.sampling).model_dump(mode="json")
    request = json.dumps({"run": run, "env": _keys(run["client"])}).encode()
    started = time.monotonic()
    try:
        episode, node = await cluster.play(request, ctx.client.base_url)
    except ClusterError:
        raise
    except EnvError as error:
        told = Error(type=type(error).__name__, message=str(error), traceback=traceback.format_exc())
        recorded: TraceTask[Any] = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        episode = Episode(env=EnvInfo(id=env_id), task=recorded, errors=[told])
        shorten_tasks(episode)
    for trace in episode.traces:
        agent_record(trace)["node"] = node
        if on_trace is not None:
            on_trace(trace)
        logger.info("%s%s", describe_rollout(trace, time.monotonic() - started), progress())
    if episode.errors:
        logger.warning("%s", describe_failure(episode))
    return episode

"""prime-rl's environment server, dispatcher, curriculum, GRPO, sink, sample builder and packer over our rollouts."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import verifiers.v1 as vf
from prime_rl import monitors
from prime_rl.configs.monitors import FileMonitorConfig
from prime_rl.configs.rl import RLConfig
from prime_rl.entrypoints.rl import env_servers, write_subconfigs
from prime_rl.orchestrator.dispatcher import Dispatcher
from prime_rl.orchestrator.envs import TrainEnvs
from prime_rl.orchestrator.train_sink import TrainSink
from prime_rl.orchestrator.train_source import TrainSource
from prime_rl.orchestrator.types import GroupCancellation, Policy, Progress, TrainBatch
from prime_rl.utils.client import InferencePool

# verifiers 0.4 has no such attribute: the images of a branch are reached in another way, and there are none here.
_branch: Any = vf.Branch
if not hasattr(_branch, "multi_modal_data"):
    _branch.multi_modal_data = None


@dataclass
class Served:
    """The environment servers of one run."""

    processes: list[psutil.Process]
    busy: set[int] = field(default_factory=set)
    """Workers that were seen with an agent."""
    seen: set[psutil.Process] = field(default_factory=set)
    """Programs of agents."""

    def agents(self) -> int:
        """How many programs of agents run now; notes whose they are."""
        for server in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for worker in server.children():
                    found = {child for child in worker.children(recursive=True) if "opencode" in child.name()}
                    self.seen |= found
                    self.busy |= {worker.pid} if found else set()
        return sum(agent.is_running() and agent.status() != psutil.STATUS_ZOMBIE for agent in self.seen)


@asynccontextmanager
async def serving(config: RLConfig, directory: Path) -> AsyncIterator[Served]:
    """`env-server` for every source, as the `rl` launcher starts it; it has ended on exit, with all that it started."""
    write_subconfigs(config, directory)
    started: list[psutil.Popen] = []
    try:
        for split, source, _ in env_servers(config):
            file = directory / "envs" / split / f"{source.resolved_name}.json"
            with file.with_suffix(".log").open("w") as log:
                argv = ["env-server", "@", str(file)]
                started.append(psutil.Popen(argv, cwd=directory, stdout=log, stderr=log))
        yield Served(started)
    finally:
        for server in started:
            server.terminate()
        for server in started:
            try:
                await asyncio.to_thread(server.wait, 60)
            except psutil.TimeoutExpired:  # seen once: verifiers' broker lost the interrupt that it makes of SIGTERM
                server.kill()


@dataclass
class Learner:
    """What an orchestrator has of one run, but for trainer, weights and metrics of the engine."""

    config: RLConfig
    envs: TrainEnvs
    dispatcher: Dispatcher
    sink: TrainSink
    progress: Progress
    episodes: list[vf.WireEpisode] = field(default_factory=list)
    """Every episode that came, whatever became of it."""
    cancelled: list[GroupCancellation] = field(default_factory=list)
    """Every group that was dropped."""

    async def take(self) -> TrainBatch | None:
        """The next thing that the dispatcher hands out, through the sink."""
        item = await self.dispatcher.out_q.get()
        if isinstance(item, GroupCancellation):
            self.cancelled.append(item)
            return await self.sink.cancel(item)
        self.episodes.append(item)
        await monitors.log([item], self.progress.step, "train", "all")
        return await self.sink.add(item)


@asynccontextmanager
async def learner(config: RLConfig, outputs: Path) -> AsyncIterator[Learner]:
    """Everything connected and dispatching; prime-rl's own monitor writes the traces below `outputs`."""
    run = config.orchestrator
    pool = InferencePool(run.model.client, run.model.name, "renderer", "openai_chat_completions", run.renderer)
    await pool.wait_for_ready(run.model.name, timeout=60)
    envs = TrainEnvs(run.train.source, run.env_addresses, policy_pool=pool, renderer_config=run.renderer)
    await envs.start()
    for env in envs:
        await asyncio.gather(env.generation_source.setup(), env.algorithm.setup())
    source, progress = TrainSource(envs), Progress()
    settings: dict[str, Any] = {"eval_envs": None, "eval_source": None, "tasks_per_minute": run.tasks_per_minute}
    dispatcher = Dispatcher(
        train_envs=envs,
        train_source=source,
        policy_pool=pool,
        policy=Policy(0, run.model.name),
        progress=progress,
        initial_max_inflight=run.concurrency.max_inflight,
        max_inflight_ceiling=run.concurrency.max_inflight,
        max_off_policy_steps=run.max_off_policy_steps,
        run_id=uuid.uuid4().hex,
        run_name=None,
        **settings,
    )
    batching = {"batch_size": run.batch_size, "token_batch_size": run.token_batch_size}
    sink = TrainSink(
        run,
        tokenizer=None,
        train_envs=envs,
        mm_token_type_ids_mapping=None,
        progress=progress,
        on_result=source.on_result,
        **batching,
    )
    monitors.MONITORS.clear()
    await monitors.setup(file=FileMonitorConfig(), output_dir=outputs)
    dispatching = asyncio.create_task(dispatcher.start())
    try:
        yield Learner(config, envs, dispatcher, sink, progress)
    finally:
        await dispatcher.stop()
        await dispatching
        for env in envs:
            await env.env_client.close()
        await pool.stop()

"""`CliAgentEnv`: one CLI agent in one sandbox that the environment owns from provisioning to removal.

From the moment a sandbox starts it belongs to exactly one rollout's `_sandbox` context, which runs the
cleanup hooks and removes it whatever happened: error, deadline, cancellation, or a hook that raises.
"""

import asyncio
import contextlib
import copy
import gc
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, ClassVar, Generic

from opencode_rubrics import Rubric, rubrics_in_use, run_cleanup, work_directory
from opencode_rubrics.cache import cache_root, require_cache
from pydantic import Field, model_validator
from rollout_sandbox.compat import GONE_RUNTIMES, asked_network
from rollout_sandbox.confined import Bind, LocalSandboxConfig, require_bubblewrap, require_private_workdir
from rollout_sandbox.outcomes import Outcome
from rollout_sandbox.prime import PrimeLimits, PrimeQueue
from rollout_sandbox.surrogates import replace_surrogates
from rollout_sandbox.told import task_name
from rollout_sandbox.toolbox.scoring import SecondSandboxOptions, attach
from typing_extensions import TypeVar
from verifiers.v1.agent import Agent, Agents
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.agent import AgentConfig, agent_config_fields
from verifiers.v1.configs.env import EnvConfig
from verifiers.v1.configs.retries import RetryConfig
from verifiers.v1.env import Env, RunSlot
from verifiers.v1.episode import Episode
from verifiers.v1.errors import HarnessError, SandboxError, TaskError, boundary
from verifiers.v1.runtimes import Runtime, RuntimeConfig, SubprocessConfig, runtime_is_local
from verifiers.v1.task import Task
from verifiers.v1.utils.decorators import invoke
from verifiers.v1.utils.generic import concrete_type
from verifiers.v1.utils.paths import CACHE_DIR

from opencode_env.agents.named.npm import NPM_AGENTS, NpmAgents, harness_binds
from opencode_env.cli_agent.classification import (
    blame_own_programs,
    fail_stage_timeout,
    note_outcome,
    unscore_failed,
    zero_spoilt,
)
from opencode_env.cli_agent.cluster_play import cluster_of, play_on, require_fit
from opencode_env.cli_agent.evaluation import CapConfig, Evaluation, EvaluationReport, Probe, require_proxies
from opencode_env.cli_agent.features import Feature, Run, ordered_task, outcomes_of
from opencode_env.cli_agent.guard import guarded, guarded_task
from opencode_env.cli_agent.interception import GatewayConfig
from opencode_env.cli_agent.interception.training_client import require_trainable
from opencode_env.cli_agent.interception_servers import raise_open_files, role_interception
from opencode_env.cli_agent.outcomes import AgentErrors, retries_of_outcomes
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.sandboxes import provision_container, provision_local
from opencode_env.cli_agent.seats import limit_rollout, scoring_limit, take_scoring_limit, warn_of_short_limit
from opencode_env.cli_agent.traces import (
    AnyTrace,
    agent_record,
    describe_failure,
    describe_rollout,
    our_words_logged,
    shorten_tasks,
)
from opencode_env.cluster.config import ClusterConfig
from opencode_env.compat import keepalive_after

logger = logging.getLogger("verifiers.v1.opencode_env")


class CliAgentEnvConfig(EnvConfig):
    """An environment of one CLI agent; a subclass pins the agent's harness in the seat's default."""

    agent: AgentConfig = AgentConfig(runtime=SubprocessConfig())
    """The seat. Its `subprocess` runtime, the default, is the confined local sandbox, `podman` one of ours, and `prime`
    verifiers' own under our ownership; `docker`, … are verifiers' own runtimes."""
    sandbox: LocalSandboxConfig = LocalSandboxConfig()
    """The confined local sandbox; without effect on other runtimes."""
    prime: PrimeLimits = PrimeLimits()
    """What one process may ask of Prime at once, as each worker of a cluster does; without effect on other runtimes."""
    gateway: GatewayConfig = GatewayConfig()
    """What one rollout may ask of the path to the model, on every runtime."""
    cluster: ClusterConfig = ClusterConfig()
    """The nodes that play the rollouts, whole; by default this process does."""
    probe: Probe = "models"
    """How `vf-eval` asks a chat endpoint before any sandbox starts: `models`, for its list of them; `call`, also for
    one token where there is no list; `none`, not at all. An unknown name, refused connections, TLS, 401 and 403 end
    the run, everything else is a warning."""
    end_after_failures: int | None = Field(10, ge=1)
    """Under `vf-eval`, so many rollouts on three tasks, or on all, that an endpoint failed before their first answer
    with one status and text end the run; never with 408, 429 or 5xx. None never ends it."""
    cap: CapConfig = Field(CapConfig(), exclude=True)
    """What the model calls of one `vf-eval` may cost; without effect elsewhere."""
    agent_errors: AgentErrors = "score"
    """What becomes of a run that the agent's own programs can have broken. `score`: the files as they are, with the
    metric `agent_error_own`. `error`: an `AgentError`, unscored; a policy may prefer that to a failure."""
    retries: RetryConfig = RetryConfig()
    """Tries of a whole episode after an error. What an agent can bring about at will, such as an `AgentError`, is tried
    again only if a rule names it: else the best of several attempts would count. "What can go wrong" says which."""

    @model_validator(mode="before")
    @classmethod
    def _no_runtime_that_is_gone(cls, given: Any) -> Any:
        for name, seat in given.items() if isinstance(given, dict) else ():
            runtime = seat.get("runtime") if isinstance(seat, dict) else None
            kind = str(runtime.get("type")) if isinstance(runtime, dict) else ""
            if kind in GONE_RUNTIMES:
                gone = f'verifiers has no "{kind}" after 0.4.0; use {GONE_RUNTIMES[kind]}'
                raise ValueError(f"--env.{name}.runtime.type: {gone}")
        return given

    @model_validator(mode="after")
    def _no_agent_retries(self) -> "CliAgentEnvConfig":
        for name, seat in agent_config_fields(self).items():
            if seat.retries.max_retries or seat.retries.rules:
                raise ValueError(
                    f"--env.{name}.retries does not apply here: the sandbox belongs to the environment, so a whole "
                    "episode is what is tried again; use --env.retries"
                )
        return self

    @model_validator(mode="after")
    def _no_retries_of_agent_errors(self) -> "CliAgentEnvConfig":
        self.retries = retries_of_outcomes(self.retries, self.outcomes())
        return self

    @model_validator(mode="after")
    def _plays_on_a_cluster(self) -> "CliAgentEnvConfig":
        if self.cluster.type != "none":
            require_fit(self.features(), capped=self.cap.tokens is not None or self.cap.cost is not None)
        return self

    def features(self) -> Sequence[Feature]:
        """Return what the environment has beside its agent, made anew; the first is the outermost."""
        return ()

    def outcomes(self) -> list[Outcome]:
        """Return every way in which a rollout can end."""
        return outcomes_of(self.features())


ConfigT = TypeVar("ConfigT", bound=CliAgentEnvConfig, default=CliAgentEnvConfig)


class CliAgentEnv(Env[ConfigT], Generic[ConfigT]):
    """Plays one agent run per episode in a sandbox of its own, scores in it, cleans up, removes it.

    Which agent is the seat's harness (`--env.agent.harness.id`). The configuration says which features it is composed
    of. Methods of the environment, the harness, the task and its rubric that are decorated with
    `opencode_rubrics.cleanup` run after scoring, highest priority first, whatever happened.
    """

    SEATS_WITHOUT_SANDBOX: ClassVar[frozenset[str]] = frozenset()
    """Seats that run no program and get no sandbox; their runtime means nothing."""
    NPM_AGENTS: ClassVar[NpmAgents] = NPM_AGENTS
    """The agents whose npm packages this machine installs; an environment of one agent adds its own."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a class whose config verifiers would not find: it looks for `Env[Config]` among the bases only."""
        super().__init_subclass__(**options)
        if vars(cls).get("__parameters__"):  # its config is a parameter of its own
            return
        named = concrete_type(cls, CliAgentEnvConfig) or CliAgentEnvConfig
        if named is not concrete_type(cls, EnvConfig, origin=Env):
            config = f"Env[{named.__name__}]"
            raise TypeError(
                f"verifiers finds no config of {cls.__name__}: add {config} to its bases, after CliAgentEnv"
            )

    def __init__(self, config: ConfigT) -> None:
        # verifiers warns that a `subprocess` runtime runs on the host; here that type is the confined sandbox.
        env_logger = logging.getLogger("verifiers.v1.env")
        if config.sandbox.confine:
            env_logger.addFilter(_hide_subprocess_warning)
        try:
            super().__init__(config)
        finally:
            env_logger.removeFilter(_hide_subprocess_warning)
        self._resources = AsyncExitStack()
        self._prime_queue = PrimeQueue(self.config.prime)
        self._features = self.config.features()
        self._outcomes = outcomes_of(self._features)
        self._evaluation = Evaluation(self.config.probe, self.config.end_after_failures, self.config.cap)
        limited = config.agent.timeout.rollout is not None
        self._cluster = cluster_of(self, self._features, self._box_memory())
        local = self._runs_locally() and self._cluster is None
        self._report = EvaluationReport(local=local, limited=limited, cap=self.config.cap)
        self._names: dict[int | None, str] = {}

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold the serving resources, with our interception servers: whole streams, and roles where a seat has them."""
        # What the last two say ends the log.
        with our_words_logged(self._names), contextlib.closing(self._evaluation), self._report:
            async with self._served() if self._cluster is None else self._cluster.serving():
                yield

    @contextlib.asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        """Do what `Env.serving` of verifiers does, with role servers."""
        raise_open_files()
        async with self.shared_tools() as shared:
            secrets = tuple(server.state_secret for server in shared.values() if server.state_secret)
            outside, gateway = self._requires_tunnel(shared), self.config.gateway
            servers = role_interception(self.config.interception, outside, secrets, gateway, self._evaluation.spend)
            with keepalive_after(gateway.answer_after if outside else None):
                async with servers:
                    self._shared_tools, self._interception = shared, servers
                    try:
                        await self.start()
                        with _frozen():
                            yield
                    finally:
                        try:
                            await self.stop()
                        finally:
                            self._shared_tools, self._interception = {}, None

    async def start(self) -> None:
        """Hold this process's rubrics open; a subclass that overrides it calls it.

        Raises:
            SandboxError: a cache cannot be written; or a seat needs the confined local sandbox, and bubblewrap does not
                work here.
            EnvError: no HTTP client can be made with the proxies of the environment.
            RolloutError: a feature cannot serve; `Feature.serving` says why.
        """
        require_proxies()
        await asyncio.to_thread(require_cache, CACHE_DIR, cache_root())
        if self._runs_locally():
            await asyncio.to_thread(require_bubblewrap)
        await self._resources.enter_async_context(rubrics_in_use())
        for feature in self._features:
            await self._resources.enter_async_context(feature.serving())

    def _runs_locally(self) -> bool:
        """Whether a seat needs the confined local sandbox."""
        return self.config.sandbox.confine and any(isinstance(one, SubprocessConfig) for one in self._runtimes())

    def _runtimes(self) -> list[RuntimeConfig]:
        """Those of the seats that have a sandbox."""
        seats = agent_config_fields(self.config).items()
        return [seat.runtime for name, seat in seats if name not in self.SEATS_WITHOUT_SANDBOX]

    def _box_memory(self) -> int | None:
        """Bytes that the sandboxes of a rollout take at most where it is played, one for scoring beside those of the
        seats; None: no limit."""
        boxed = self._runtimes()
        if not any(map(runtime_is_local, boxed)):
            return 0
        limited = self.config.sandbox.confine and all(isinstance(runtime, SubprocessConfig) for runtime in boxed)
        each = self.config.sandbox.max_memory
        return (len(boxed) + 1) * each if limited and each is not None else None

    async def stop(self) -> None:
        """End the features and let the rubrics go; the last environment of the process tears those down."""
        await self._resources.aclose()

    async def setup(self, agents: Agents) -> None:
        """Have the features decide what becomes of their seats."""
        for feature in self._features:
            feature.setup(agents)

    def slots(self, task: Task[Any, Any, Any], n: int = 1) -> list[RunSlot]:
        """Plan `n` episodes of a task, before anything of the run starts; limits that do not fit are warned about."""
        longest = sum(rubric.longest(task.data) for rubric in _rubrics(task))
        warn_of_short_limit(task, scoring_limit(self.config.agent.timeout, task), longest)
        self._evaluation.planned(task)
        self._report.plan(n)
        return super().slots(task, n)

    async def run_slot(self, slot: RunSlot, ctx: ModelContext, *options: Any, **more: Any) -> Episode[Any, Any, Any]:
        """Run one planned episode to its end.

        Raises:
            RunEndedError: `vf-eval` runs it, and its endpoint cannot be used, or fails every rollout alike, or the
                run's cap is reached; or the cluster cannot play it.
        """
        # What writes episodes down and watches no traces is an evaluation in this process: servers do the reverse.
        evaluates = (len(options) > 1 or "on_complete" in more) and "on_trace" not in more
        seats = agent_config_fields(self.config).values()
        if self._cluster is not None:
            self._cluster.require_reachable(ctx.client.base_url)
        for seat in seats if evaluates else ():
            await self._evaluation.require_endpoint(seat.client or ctx.client, seat.model or ctx.model)
        self._report.begin(options[0] if options else more.get("semaphore"))
        async with self._evaluation.playing() if evaluates else contextlib.nullcontext():
            episode: Episode[Any, Any, Any] = await super().run_slot(slot, ctx, *options, **more)
        self._report.finish(episode)
        if evaluates:
            self._evaluation.ended(episode)
        return episode

    def complete(self, episode: Episode[Any, Any, Any]) -> bool:
        """Whether `--resume` keeps an episode, which the run's table then counts."""
        kept = super().complete(episode)
        if kept:
            self._report.keep(episode)
        return kept

    async def run_episode(
        self, task: Task[Any, Any, Any], ctx: ModelContext, **watchers: Any
    ) -> Episode[Any, Any, Any]:
        """One episode, whatever came of it, in a form that can be written down."""
        if self._cluster is not None:
            self._names[task.data.idx] = task_name(task.data)
            return await play_on(self._cluster, self.config.env_id, task, ctx, self._report.progress, **watchers)
        episode: Episode[Any, Any, Any] = await super().run_episode(task, ctx, **watchers)
        blame_own_programs(episode)
        for trace in episode.traces:
            note_outcome(trace)
        replace_surrogates(episode)
        shorten_tasks(episode)
        if episode.errors:
            logger.warning("%s", describe_failure(episode))
        return episode

    async def run(self, task: Task[Any, Any, Any], agents: Agents) -> None:
        """One episode: provision, run the agent, score, clean up, remove.

        Raises:
            EnvError: a seat's training client could not give traces to train on.
        """
        await require_trainable(getattr(agents, name) for name in agent_config_fields(self.config))
        self._names[task.data.idx] = task_name(task.data)
        started = time.monotonic()
        rollout = Rollout(self._outcomes)
        async with AsyncExitStack() as stack:
            for feature in self._features:
                await stack.enter_async_context(feature.playing(task, agents, rollout))
            trace = await self._play(task, agents, rollout)
        seconds = time.monotonic() - started
        agent_record(trace)["rollout_seconds"] = round(seconds, 3)
        logger.info("%s%s", describe_rollout(trace, seconds), self._report.progress())

    async def _play(self, task: Task[Any, Any, Any], agents: Agents, rollout: Rollout) -> AnyTrace:
        agent, config = agents.agent, self.config
        limit_rollout(agent, task, 0.0 if rollout.before is None else rollout.before.seconds)
        scored = guarded_task(task, take_scoring_limit(agent, task), continued=rollout.before is not None)
        agent.harness = guarded(agent.harness, contained=config.sandbox.confine, agent_errors=config.agent_errors)
        async with (
            self._prime_queue.place(agent.runtime_config) as rollout.start,
            self._sandbox(task, agent, rollout) as box,
        ):
            await self.run_agent(scored, agents, box, rollout)
            trace = rollout.trace
            assert trace is not None
            rollout.start.note_on(trace)
            fail_stage_timeout(trace)
            zero_spoilt(trace)
            unscore_failed(trace)
        return trace

    async def run_agent(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout) -> None:
        """Run the agent in `box` with the features around it; `rollout` begins when its trace is minted."""
        run: Run = partial(agents.agent.run, runtime=box, on_trace=rollout.begin)
        for feature in reversed(self._features):
            run = partial(feature.run, agents=agents, box=box, rollout=rollout, run=run)
        await run(task)

    @contextlib.asynccontextmanager
    async def _sandbox(self, task: Task[Any, Any, Any], agent: Agent, rollout: Rollout) -> AsyncIterator[Runtime]:
        """The rollout's sandbox, with the cleanup hooks run before it is removed; the rollout ends with it."""
        async with AsyncExitStack() as stack:
            deadline = agent.timeout.setup if agent.timeout.setup is not None else task.data.timeout.setup
            try:
                async with asyncio.timeout(deadline) as limit:
                    box = await stack.enter_async_context(self._provision(task, agent, rollout))
            except TimeoutError as error:
                if not limit.expired():
                    raise
                late = f"the sandbox was not up within {deadline:g} s (--env.agent.timeout.setup)"
                raise SandboxError(late) from error
            attach(rollout, box, agents=True)
            rollout.boxes = partial(self._second_sandbox, task, agent, rollout)
            try:
                yield box
            finally:
                try:
                    await rollout.end()
                finally:
                    available = {"task": task.data, "trace": rollout.trace, "runtime": box}
                    await run_cleanup([self, agent.harness, task, *_rubrics(task)], available)
                # verifiers stamps the box of a borrowed run and its container runtimes then never remove it.
                box.info.borrowed = False

    @contextlib.asynccontextmanager
    async def _second_sandbox(
        self, task: Task[Any, Any, Any], agent: Agent, rollout: Rollout, order: SecondSandboxOptions
    ) -> AsyncIterator[Runtime]:
        """A second sandbox for scoring (see `rollout_sandbox.toolbox.scoring`), with the task's own setup behind it."""
        ordered = ordered_task(task, order)
        async with self._provision(ordered, copy.copy(agent), rollout) as box:
            await invoke(ordered.setup, {"trace": rollout.trace, "runtime": box, "deployment": None})
            attach(rollout, box)  # only now: the setup takes nobody's time
            yield box

    @contextlib.asynccontextmanager
    async def _provision(self, task: Task[Any, Any, Any], agent: Agent, rollout: Rollout) -> AsyncIterator[Runtime]:
        """A box from the seat's runtime: the confined local sandbox for `subprocess`, else a container."""
        workdir = work_directory(task.data, agent.config)
        if not isinstance(agent.runtime_config, SubprocessConfig):
            if "workdir" in type(agent.runtime_config).model_fields:
                agent.runtime_config = agent.runtime_config.model_copy(update={"workdir": workdir})
            async with provision_container(task, agent, rollout) as box:
                yield box
            return
        if agent.harness.NEEDS_CONTAINER and not self.config.sandbox.confine:
            raise HarnessError(
                f"harness {agent.harness.config.id!r} installs and drives a program of its own, which would share "
                "this machine's files, settings and processes: leave out --env.sandbox.confine false (the confined "
                "local sandbox runs it), or choose a container (--env.agent.runtime.type docker|podman|prime)"
            )
        if task.data.image is not None:
            raise TaskError(
                f"task {task.data.idx} asks for image {task.data.image!r}, which the local sandbox cannot give: use "
                "--env.agent.runtime.type docker, podman, apptainer, prime, modal or e2b"
            )
        if self.config.sandbox.confine:
            require_private_workdir(workdir)
        binds = [*await self.local_binds(agent)]
        if rubrics := _rubrics(task):
            binds += await rubrics[0].shared_directories()
        network = asked_network(task.data)
        async with provision_local(self.config.sandbox, binds, task.runtime_env(), workdir, network) as box:
            yield box

    async def local_binds(self, agent: Agent) -> Sequence[Bind]:
        """Host directories that the agent's harness wants to see, read-only, in the confined local sandbox. A harness
        names them itself (`local_binds`); for verifiers' own they are made here."""
        wanted = getattr(agent.harness, "local_binds", None)
        async with boundary(HarnessError, "preparing the harness's files"):
            asked = harness_binds(agent.harness, self.NPM_AGENTS) if wanted is None else wanted()
            binds: Sequence[Bind] = await asked
        return binds


@contextlib.contextmanager
def _frozen() -> Iterator[None]:
    """Leave what is there out of full collections, which would go through the modules: 400,000 objects, 0.2 s."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _rubrics(task: Task[Any, Any, Any]) -> list[Rubric[Any]]:
    rubric = getattr(task, "rubric", None)
    return [rubric, *rubric.members] if isinstance(rubric, Rubric) else []


def _hide_subprocess_warning(record: logging.LogRecord) -> bool:
    return "running in the subprocess runtime" not in record.msg

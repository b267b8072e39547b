"""The task: one episode of a world, played by an agent that sees its tools only.

The world is reset before the agent starts and closed before anything is scored; a world that failed at any time is an
error of the rollout, never a reward.
"""

import hashlib
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import verifiers.v1 as vf
from opencode_rubrics import (
    AnyRubricConfig,
    AnyTrace,
    EnvironmentReturnConfig,
    Rubric,
    RubricTask,
    cleanup,
    live_rubric,
)
from opencode_runs.turns.kept import TurnRow
from pydantic import Field, JsonValue, field_validator
from rollout_sandbox.toolbox.scoring import not_the_agents
from verifiers.v1.task import task_key

from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.hub import hub
from opencode_simulation.ledger import LEDGER_KEY, TERMINATION_KEY, Ledger, LedgerSummary, TerminationReason, ledger_of
from opencode_simulation.plain_json import text_of
from opencode_simulation.reference import find_world, world_name
from opencode_simulation.toolset import RolloutToolset, SimulationToolsetConfig

if TYPE_CHECKING:
    from opencode_simulation.alone import WorldCheck

_DONE = "environment_done"


class SimulationTaskConfig(vf.TaskConfig):
    """Sets which world is played, where it runs and how it is scored."""

    world: str = "frozen-lake"
    """A shipped world (`frozen-lake`, `issue-tracker`, `order-desk`), or `module:Class`."""
    server: Literal["rollout", "shared"] = "rollout"
    """`rollout`: a server process for each rollout's world. `shared`: one for all worlds of an environment's process,
    which saves each rollout the start of Python and shares the processor between worlds."""
    max_steps: int | None = Field(None, ge=1)
    """Steps after which an episode is truncated; a row's own goes before it. None: no limit but the world's, and that
    of the ledger, which ends an episode that fills it (16 MiB; about 4000 steps, however short)."""
    call_timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds that one call of a world's methods may take."""
    rubric: AnyRubricConfig = EnvironmentReturnConfig()
    """The rubric that scores; `group` puts others beside `environment-return`."""

    @field_validator("world")
    @classmethod
    def _there_is_such_a_world(cls, value: str) -> str:
        find_world(value)
        return value


class SimulationTaskData(vf.TaskData):
    """One episode of a world. The prompt is a template until the world has been reset, and the filled one after."""

    seed: int | None = None
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """The row's own, without the world's defaults."""
    max_steps: int | None = None
    user_simulation: dict[str, JsonValue] | None = None
    answer: str | None = None
    verify: list[str] = Field(default_factory=list)
    verify_timeout: float | None = None
    kept_turn: TurnRow | None = None
    """The kept turn that rollouts of the task go on from."""
    info: dict[str, JsonValue] = Field(default_factory=dict)
    prompt_template: str | None = None
    """What `prompt` was before the first observation filled it."""
    rollout: str | None = None
    """While its world's server starts: the rollout's id."""


class SimulationTask(RubricTask[SimulationTaskData, vf.State, SimulationTaskConfig]):
    """One row of a `SimulationTaskset`."""

    config: SimulationTaskConfig
    KEPT_INFO: ClassVar[tuple[str, ...]] = (LEDGER_KEY,)
    """What of `trace.info` a kept turn holds."""

    @property
    def continues(self) -> bool:
        return self.data.kept_turn is not None

    @property
    def brought_back(self) -> frozenset[str]:
        """The tool servers whose state `setup_continued` brings back."""
        return frozenset({world_name(find_world(self.config.world))})

    @property
    def key(self) -> str:
        """The row's id; without one, a hash of the episode that leaves out `idx`."""
        if self.data.id is not None:
            return self.data.id
        return task_key(self.data.model_dump(mode="json", exclude_none=True, exclude={"idx"}))

    @property
    def rubric(self) -> Rubric[Any]:
        """The live rubric that scores this task, shared with all tasks of the same configuration."""
        return live_rubric(self.config.rubric)

    @classmethod
    def toolsets(cls, config: SimulationTaskConfig) -> list[vf.Toolset[Any, Any]]:
        return [] if config.server == "shared" else [RolloutToolset(server_config(config))]

    async def setup(self, trace: AnyTrace, runtime: vf.Runtime) -> None:
        """Expect the rollout's world, or have the shared server reset it."""
        await self._open(trace)

    async def setup_continued(self, trace: AnyTrace, runtime: vf.Runtime) -> None:
        """Expect a world in which the steps of the kept turn's ledger are taken again."""
        await self._open(trace, ledger_of({LEDGER_KEY: trace.info.pop(LEDGER_KEY)}))

    def episode_spec(self, before: Ledger | None = None) -> EpisodeSpec:
        """Return which episode the row asks for; with a ledger, one that goes on from it."""
        return EpisodeSpec(
            seed=self.data.seed,
            config=self.data.config,
            max_steps=self.data.max_steps or self.config.max_steps,
            step_timeout=self.config.call_timeout,
            before=before,
        )

    async def _open(self, trace: AnyTrace, before: Ledger | None = None) -> None:
        config = {**find_world(self.config.world).default_config(), **self.data.config}
        ledger = Ledger(summary=LedgerSummary(world=self.config.world, seed=self.data.seed, config=config))

        def changed(ledger: Ledger) -> None:
            _write(trace, ledger)
            if ledger.summary.error is not None and ledger.summary.first_observation is None:
                trace.stop(_DONE)  # before the agent was started: it then never is

        trace.task.data = trace.task.data.model_copy(update={"rollout": trace.id})
        await hub().open(trace.id, self.episode_spec(before), ledger, changed)
        if self.config.server == "shared":
            await hub().open_shared(trace.id, shared_group(self.config))

    @vf.stop
    async def environment_done(self, trace: vf.Trace) -> bool:  # type: ignore[type-arg]  # verifiers looks for this type
        """Whether nothing that the agent does counts any more: the world has ended, or has failed."""
        return hub().over(trace.id)

    async def finalize(self, trace: AnyTrace, runtime: vf.Runtime) -> None:
        """Close the world; its ledger is then whole. One that failed at any time is a `WorldError`."""
        with not_the_agents():
            ledger = await hub().finish(trace.id)
        last = ledger.steps[-1].info if ledger.steps else {}
        reason = termination_reason(trace, ledger.summary, dict(last))
        ledger.summary.termination_reason = trace.info[TERMINATION_KEY] = reason
        _write(trace, ledger)

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """`vf-validate`: whether the calls in the row's `info.gold` give a return of 1; None where there are none."""
        from opencode_simulation.alone import gold_is_right  # an MCP client, half a second

        return await gold_is_right(self)

    def own_check(self, repeats: int, gold: str | None) -> "WorldCheck":
        """The check of `opencode-check-tasks`: the world played `repeats` times untouched and with its solution."""
        from opencode_simulation.alone import WorldCheck  # an MCP client, half a second

        return WorldCheck(self, repeats, gold)

    @cleanup()
    async def forget_world(self, trace: AnyTrace | None) -> None:
        """Let the world go, also where the rollout failed before `finalize`."""
        if trace is not None:
            await hub().forget(trace.id)


def server_config(config: SimulationTaskConfig) -> SimulationToolsetConfig:
    """The configuration of the server of one rollout's world, or of the shared one."""
    return SimulationToolsetConfig(
        world=config.world,
        socket=hub().path,
        token=hub().token,
        group=shared_group(config) if config.server == "shared" else None,
        import_path=[os.path.abspath(path) for path in sys.path],
    )


def shared_group(config: SimulationTaskConfig) -> str:
    """Return what a shared server and the tasks whose worlds it serves have in common."""
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()


def termination_reason(
    trace: AnyTrace, summary: LedgerSummary, last_info: dict[str, object]
) -> TerminationReason | None:
    """Return why an episode ended, in the words that trainers of its family expect; None where the agent just stopped,
    ran out of time or failed. `last_info` is what its last step said."""
    by_a_limit = last_info.get("truncated_by") in ("max_steps", "ledger_bytes")
    if summary.terminated or (summary.truncated and not by_a_limit):
        return "control_plane_signal"
    if summary.truncated or trace.stop_condition in ("max_turns", "max_user_turns"):
        return "max_steps"
    return "user_stop" if trace.stop_condition == "user_stop" else None


def _write(trace: AnyTrace, ledger: Ledger) -> None:
    """Put what is new in the ledger on the trace, and the first observation into its prompt."""
    record = trace.info.setdefault(LEDGER_KEY, {"steps": []})
    record["steps"] += [entry.model_dump(mode="json") for entry in ledger.steps[len(record["steps"]) :]]
    record["summary"] = ledger.summary.model_dump(mode="json")
    data, first = trace.task.data, ledger.summary.first_observation
    if data.rollout is None or first is None:
        return
    prompt = data.prompt.replace("{observation}", text_of(first))
    trace.task.data = data.model_copy(update={"prompt": prompt, "prompt_template": data.prompt, "rollout": None})

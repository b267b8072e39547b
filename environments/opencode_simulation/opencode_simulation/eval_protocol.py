"""What migrates from eval-protocol: a world made of its hooks, and a rollout as its `Trajectory`.

A subclass of `EnvironmentWorld` keeps those hooks as they are, also as another base (an `EnvironmentAdapter`), before
or after this one; and it marks its tools with `@tool`: a tool returns the action for `step_environment`, or the call
for `parse_action`.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, JsonValue, TypeAdapter

from opencode_simulation.errors import InvalidAction
from opencode_simulation.ledger import FINISH, TERMINATION_KEY, LedgerEntry, LedgerSummary, ledger_of
from opencode_simulation.world import Step, World

if TYPE_CHECKING:  # it takes seconds, and a world's module needs none of it
    from opencode_env.cli_agent.traces import AnyTrace

_HOOKS = (
    *("get_default_config", "create_environment", "create_environment_with_seed", "reset_environment"),
    *("step_environment", "close_environment", "parse_action", "format_observation"),
)
_ENVIRONMENT_NAMES = ("env", "environment", "_env")
_TEXT_ACTION = "action_str"
"""How eval-protocol's `parse_action` calls what it takes: only a text."""


class EnvironmentWorld(World):
    """Plays an environment object, such as one of Gymnasium's, through the seven hooks."""

    environment: Any = None
    """The environment of this episode; there is one from `reset` on."""

    DEFAULT_CONFIG: ClassVar[Mapping[str, JsonValue]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the hooks of another base go before the defaults of this class, wherever that base stands."""
        super().__init_subclass__(**options)
        ours = (EnvironmentWorld, World, object)
        for name in _HOOKS:
            first, *rest = (kind for kind in cls.__mro__ if name in vars(kind))
            other = next((kind for kind in rest if kind not in ours), None)
            if first in ours and other is not None:
                setattr(cls, name, vars(other)[name])

    @classmethod
    def get_default_config(cls) -> Mapping[str, JsonValue]:
        """Return what a row's own config is laid on."""
        return cls.DEFAULT_CONFIG

    def create_environment(self, config: dict[str, Any]) -> Any:
        """Make the environment."""
        raise NotImplementedError(f"{type(self).__name__} has no create_environment(config)")

    def create_environment_with_seed(self, config: dict[str, Any], *, seed: int | None = None) -> tuple[Any, Any, Any]:
        """Make the environment and reset it; returns it, the first observation, and its info."""
        made = self.create_environment(config)
        observation, info = self.reset_environment(made, seed)
        return made, observation, info

    def reset_environment(self, environment: Any, seed: int | None = None) -> tuple[Any, Any]:
        """Reset the environment; returns the first observation and its info."""
        found: tuple[Any, Any] = environment.reset(seed=seed)
        return found

    def step_environment(self, environment: Any, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Take an action; returns observation, reward, terminated, truncated and info."""
        found: tuple[Any, float, bool, bool, Mapping[str, Any]] = environment.step(action)
        return found

    def close_environment(self, environment: Any) -> None:
        """Free what the environment holds."""
        if hasattr(environment, "close"):
            environment.close()

    def parse_action(self, action: Any) -> Any:
        """Return what a tool returned as the environment takes it; what this raises refuses the call, and nothing
        changes."""
        return action

    def formatter(self) -> Callable[[Any], Any]:
        """`format_observation`, given the environment too where it asks for that."""
        _, *more = inspect.signature(self.format_observation).parameters.values()
        if not more or more[0].kind is more[0].VAR_POSITIONAL:
            return self.format_observation
        if more[0].default is not more[0].empty and more[0].name not in _ENVIRONMENT_NAMES:
            return self.format_observation
        return partial(self.format_observation, **{more[0].name: self.environment})

    @classmethod
    def default_config(cls) -> Mapping[str, JsonValue]:
        """Return what `get_default_config` gives, which may be a method of an instance."""
        hook = inspect.getattr_static(cls, "get_default_config")
        given = cls if isinstance(hook, classmethod | staticmethod) else cls()
        return given.get_default_config() or {}

    def reset(self, seed: int | None, config: Mapping[str, JsonValue]) -> Any:
        """Make the environment, with its seed, and return the first observation."""
        self.environment, observation, _ = self.create_environment_with_seed(dict(config), seed=seed)
        return observation

    def step(self, action: Any) -> Step:
        """Parse the action and take it. `parse_action` refuses it, in the manner of these hooks, with a ValueError or
        the like."""
        try:
            wanted = next(iter(inspect.signature(self.parse_action).parameters), "")
            # Where only a text is parsed, any other action is one for `step_environment` already.
            parsed = self.parse_action(action) if isinstance(action, str) or wanted != _TEXT_ACTION else action
        except (ValueError, TypeError, LookupError) as error:
            raise InvalidAction(f"{action!r} is not an action here: {error}") from error
        return Step(*self.step_environment(self.environment, parsed))

    def close(self) -> None:
        """Close the environment, if one was made."""
        if self.environment is not None:
            self.close_environment(self.environment)


_ARGUMENTS = TypeAdapter(dict[str, JsonValue])


class MCPToolCall(BaseModel):
    tool_name: str
    arguments: dict[str, JsonValue]
    tool_call_id: str | None = None
    """The model's id of the call, where the call was the model's own; None for one that a program of the agent made."""


class DatasetRow(BaseModel):
    id: str
    seed: int | None
    system_prompt: str
    user_prompt_template: str
    environment_context: dict[str, JsonValue]
    user_simulation: dict[str, JsonValue] | None = None


class MCPSession(BaseModel):
    session_id: str
    base_url: str = ""
    """Empty: a world's server is gone with its rollout."""
    seed: int | None
    model_id: str
    dataset_row: DatasetRow
    terminated: bool
    last_observation: JsonValue


class Trajectory(BaseModel):
    """One episode: what was seen, done and given, step by step."""

    session: MCPSession
    observations: list[JsonValue]
    """The first one, and one after each action."""
    actions: list[str]
    """As `tool({arguments})`; `tool_calls` has them apart."""
    rewards: list[float]
    """One of each action, and that of the final state where the world gave one."""
    terminated: bool
    """Whether the world, the simulated user or a limit ended it."""
    total_reward: float
    steps: int
    duration: float
    """Seconds that the agent worked."""
    control_plane_steps: list[dict[str, JsonValue]]
    """What the agent did not see of each step: `step` (from 0), `reward`, `terminated`, `truncated`, `info`, and the
    actions as `tool_calls` and `num_tool_calls`, of which the final state has none."""
    control_plane_summary: dict[str, JsonValue]
    """`total_reward`, `termination_reason`, `final_step`, `control_plane_source` (the last step's info), and the
    ledger's own summary."""
    termination_reason: str
    """Empty where the agent just stopped."""
    conversation_history: list[dict[str, Any]]
    usage: dict[str, int]
    """Tokens of the rollout's model calls: `prompt_tokens`, `completion_tokens`, `total_tokens`."""
    llm_usage_summary: dict[str, int]
    """`usage`, under the name that older versions have."""
    tool_calls: list[MCPToolCall]
    """The actions, beyond eval-protocol's fields."""


def trajectory_of(trace: "AnyTrace") -> Trajectory:
    """The trajectory of a finished rollout; a `ValueError` where it had no simulated world."""
    ledger = ledger_of(trace.info)
    if ledger is None:
        raise ValueError(f"trace {trace.id} has no simulated world (no trace.info['simulation'])")
    summary = ledger.summary
    taken = [entry for entry in ledger.steps if entry.tool != FINISH]
    observations = [summary.first_observation, *(entry.observation for entry in taken)]
    reason = str(trace.info.get(TERMINATION_KEY) or "")
    terminated = summary.terminated or summary.truncated or bool(reason)
    used = [call.usage for call in trace.calls if call.usage is not None]
    prompt, completion = sum(one.input_tokens for one in used), sum(one.completion_tokens for one in used)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return Trajectory(
        session=_session(trace, summary, terminated, observations[-1]),
        observations=observations,
        actions=[_shown(entry) for entry in taken],
        rewards=[entry.reward for entry in ledger.steps],
        terminated=terminated,
        total_reward=summary.total_reward,
        steps=summary.steps,
        duration=max(0.0, trace.timing.agent.end - trace.timing.agent.start),
        control_plane_steps=[_unseen(entry) for entry in ledger.steps],
        control_plane_summary={
            **summary.model_dump(mode="json"),
            "termination_reason": reason,
            "final_step": len(ledger.steps) - 1,
            "control_plane_source": dict(ledger.steps[-1].info) if ledger.steps else {},
        },
        termination_reason=reason,
        conversation_history=[message.model_dump(mode="json", exclude_none=True) for message in trace.messages],
        usage=usage,
        llm_usage_summary=usage,
        tool_calls=_tool_calls(trace, taken),
    )


def _session(trace: "AnyTrace", summary: LedgerSummary, terminated: bool, last: JsonValue) -> MCPSession:
    data = trace.task.data
    model = trace.agent.config.model if trace.agent is not None else None
    return MCPSession(
        session_id=trace.id,
        seed=summary.seed,
        model_id=model or "",
        dataset_row=DatasetRow(
            id=data.id or str(data.idx),
            seed=summary.seed,
            system_prompt=data.system_prompt or "",
            user_prompt_template=getattr(data, "prompt_template", None) or data.prompt_text,
            environment_context=getattr(data, "config", summary.config),
            user_simulation=getattr(data, "user_simulation", None),
        ),
        terminated=terminated,
        last_observation=last,
    )


def _tool_calls(trace: "AnyTrace", steps: list[LedgerEntry]) -> list[MCPToolCall]:
    """The steps, each with the model's next call of that tool, if there is one."""
    calls = [call for message in trace.assistant_messages for call in message.tool_calls or []]
    actions = []
    for entry in steps:
        found = next((index for index, call in enumerate(calls) if _same(call, entry)), None)
        call_id = None if found is None else calls.pop(found).id
        actions.append(MCPToolCall(tool_name=entry.tool, arguments=entry.arguments, tool_call_id=call_id))
    return actions


def _same(call: Any, entry: LedgerEntry) -> bool:
    """Whether a call of the model's is the one that took a step: the tool's name ends it, and its arguments agree."""
    try:
        given = _ARGUMENTS.validate_json(call.arguments or "{}")
    except ValueError:
        return False
    right = call.name == entry.tool or call.name.endswith(f"_{entry.tool}")
    return right and all(entry.arguments.get(name) == value for name, value in given.items())


def _shown(entry: LedgerEntry) -> str:
    return f"{entry.tool}({entry.arguments})"


def _unseen(entry: LedgerEntry) -> dict[str, JsonValue]:
    calls: list[JsonValue] = [] if entry.tool == FINISH else [_shown(entry)]
    said = entry.model_dump(mode="json", include={"reward", "terminated", "truncated", "info"})
    return {"step": entry.step - 1, **said, "tool_calls": calls, "num_tool_calls": len(calls)}

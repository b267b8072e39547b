"""A world made of the hooks that a simulation for eval-protocol has, under their names.

A subclass keeps those hooks as they are, also as another base (an `EnvironmentAdapter`), before or after this one; and
it marks its tools with `@tool`: a tool returns the action for `step_environment`, or the call for `parse_action`.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import JsonValue

from opencode_simulation.errors import InvalidAction
from opencode_simulation.world import Step, World

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
        """What a row's own config is laid on."""
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
        """What a tool returned as the environment takes it; what this raises refuses the call, and nothing changes."""
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
        """What `get_default_config` gives, which may be a method of an instance."""
        hook = inspect.getattr_static(cls, "get_default_config")
        given = cls if isinstance(hook, classmethod | staticmethod) else cls()
        return given.get_default_config() or {}

    def reset(self, seed: int | None, config: Mapping[str, JsonValue]) -> Any:
        """Make the environment, with its seed, and return the first observation."""
        self.environment, observation, _ = self.create_environment_with_seed(dict(config), seed=seed)
        return observation

    def step(self, action: Any) -> Step:
        """Parse the action and take it.

        Raises:
            InvalidAction: `parse_action` refused it, in the manner of these hooks with a ValueError or the like.
        """
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

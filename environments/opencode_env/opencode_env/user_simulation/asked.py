"""What a row says of its user, and the options of simulated users (`--env.user-simulation.*`)."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic_config import BaseConfig
from verifiers.v1.errors import TaskError
from verifiers.v1.task import Task

STOP = "###STOP###"
"""What a user's model says when it wants no more."""

PERSONA = """\
You are the user in a conversation with an assistant. You are a person, and the assistant works for you.

This is who you are and what you want:
{instructions}

- Write what this person would write: one short message at a time, in plain words.
- Say what you know when it is asked for or needed, and make nothing up that is not written above.
- The work is the assistant's: never do it yourself, and never speak as the assistant.
- When you have what you wanted, or are sure that you will not get it, answer with {stop} and nothing else."""


class UserSimulationConfig(BaseConfig):
    """How the users are played that rows ask for (a column `user_simulation`)."""

    max_turns: int = Field(20, ge=1)
    """Messages of the user in one conversation, beyond the row's prompt; then the rollout ends."""
    persona: str = PERSONA
    """System prompt of a user that a model plays; `{instructions}` is the row's `system_prompt`, `{stop}` the word with
    which the user ends the conversation."""


COLUMN = "user_simulation"


class AskedUser(BaseModel):
    """The value of a row's `user_simulation`: eval-protocol's fields, and `script`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool | None = None
    """`None`: only where there is a script."""
    system_prompt: str = ""
    """Who the user is and what they want."""
    llm: str | None = None
    """The model that plays the user, where the `user` seat names none."""
    llm_args: dict[str, JsonValue] = Field(default_factory=dict)
    """Its sampling, where the `user` seat has none."""
    script: list[Annotated[str, Field(pattern=r"\S")]] | None = Field(None, min_length=1)
    """The user's messages, one after the other; after the last, or instead of one that holds `###STOP###`, the user
    stops. No model is asked."""

    @model_validator(mode="after")
    def _wants_something(self) -> Self:
        if self.plays and self.script is None and not self.system_prompt:
            raise ValueError("it needs a system_prompt that says who plays, or a script")
        return self

    @property
    def plays(self) -> bool:
        """Whether there is a user at all."""
        return self.script is not None if self.enabled is None else self.enabled


def asked_user(task: Task[Any, Any, Any]) -> AskedUser | None:
    """The user that the task's row asks for, in a field of its own or among its other columns.

    Raises:
        TaskError: the value cannot be played.
    """
    value = getattr(task.data, COLUMN, None) or getattr(task.data, "info", {}).get(COLUMN)
    if not value:
        return None
    try:
        asked = AskedUser.model_validate(value)
    except ValidationError as error:
        raise TaskError(f"task {task.data.idx}: its {COLUMN} cannot be played: {error}") from error
    return asked if asked.plays else None

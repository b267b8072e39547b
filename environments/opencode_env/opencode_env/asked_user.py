"""What a row says of its user: the format, which whoever reads rows checks, whether or not a user can be played."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator


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

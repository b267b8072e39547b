"""Options of simulated users (`--env.user-simulation.*`)."""

from pydantic import Field
from pydantic_config import BaseConfig

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

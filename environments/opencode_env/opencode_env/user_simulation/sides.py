"""Users: one that reads from a script, and one that a model plays."""

from collections.abc import Sequence

from verifiers.v1.agent import Interaction
from verifiers.v1.errors import EnvError

from opencode_env.user_simulation.asked import STOP

USER_STOP = "user_stop"
"""The stop condition of a rollout whose user wanted no more."""
MAX_USER_TURNS = "max_user_turns"
"""The stop condition of a rollout whose user had said all that a user may say."""

_STOPS = (STOP, "###TRANSFER###", "###OUT-OF-SCOPE###")
"""The words of the users of the family that eval-protocol plays."""
_REFUSALS = (400, 413, 422)
"""What model endpoints say to a request that they will not answer, as it is too long for one."""


class BrokenUserError(EnvError):
    """A user could not be played on after the agent had spoken to it. What the agent said may be the reason (it was too
    long, or no model would answer it), so `--env.retries` leaves it alone unless a rule says otherwise: else an agent
    could have a bad episode played again."""


class ScriptedUser:
    """Says the lines of a script, whatever it is told, to the last one or the first that holds a word of the end."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.ending = USER_STOP
        """Why there is no further message, once there is none."""
        self._lines = iter(lines)

    async def open(self) -> str | None:
        """The first message of a conversation that no prompt opens."""
        return await self.answer("")

    async def answer(self, reply: str) -> str | None:
        """What the user says to the agent's `reply`; None = the conversation is over."""
        line = next(self._lines, None)
        return None if line is None or _wants_no_more(line) else line


class PlayedUser:
    """A model, in an interaction of its own whose turns are the agent's replies."""

    def __init__(self, side: Interaction) -> None:
        self.ending = USER_STOP
        self._side = side

    async def open(self) -> str | None:
        """What the user says to a greeting that only the user hears.

        Raises:
            EnvError: its model failed, or said nothing.
        """
        return await self._said("Hello! How can I help you?", EnvError)

    async def answer(self, reply: str) -> str | None:
        """What the model says.

        Raises:
            EnvError: it failed; a `BrokenUserError` where the agent's words can be the reason.
        """
        return await self._said(reply or "(The assistant has nothing to say.)", BrokenUserError)

    async def _said(self, heard: str, refused: type[EnvError]) -> str | None:
        segment = await self._side.turn(heard)
        if segment.terminated:
            if (error := self._side.trace.last_error) is not None:
                kind = refused if error.status_code in _REFUSALS else EnvError
                raise kind(f"the user could not be played: {error.type}: {error.message}")
            self.ending = MAX_USER_TURNS
            return None
        if _wants_no_more(segment.last_reply):
            return None
        if not segment.last_reply.strip():
            raise refused("the user could not be played: its model said nothing")
        return segment.last_reply


User = ScriptedUser | PlayedUser
"""The other side of a conversation."""


def _wants_no_more(line: str) -> bool:
    """Whether a line ends the conversation; the agent never reads such a line."""
    return any(word in line for word in _STOPS)

"""Plays the rows: finds the row of a request, the move that is due, and the agent's words for it."""

from collections.abc import Sequence

from opencode_env.conformance.dialect import Dialect
from opencode_env.conformance.rows import Move, Row
from opencode_env.conformance.taskset import COMMAND_MARK
from opencode_env.scripted_model import ChatRequest, Reply


class RowPolicy:
    """The scripted model's part in all rows, in one agent's dialect."""

    def __init__(self, rows: Sequence[Row], dialect: Dialect) -> None:
        self._rows = rows
        self._dialect = dialect
        self.commands: dict[str, bool] = {}
        """Whether the agent could be told to run a command, by row that was asked for."""
        self.streamed: dict[str, bool] = {}
        """Whether the agent asked for a stream, by row."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        """The reply; a row that has ended gives its last one again."""
        row = next((row for row in self._rows if any(row.mark in text for text in request.texts)), None)
        if row is None:
            return Reply(text="I am a scripted model; this is none of the suite's rows.")
        able = self._dialect.command(request, "true") is not None
        self.commands[row.name] = self.commands.get(row.name, False) or able
        self.streamed[row.name] = request.body.stream
        moves = [move for move in row.moves if able or not move.command] or [Move(text="I have no tool.")]
        return self._said(request, moves[min(request.turn, len(moves) - 1)])

    def _said(self, request: ChatRequest, move: Move) -> Reply:
        command = f": {COMMAND_MARK}; {move.command}"
        reply = self._dialect.command(request, command) if move.command else None
        reply = reply or self._dialect.answer(request, move.text)
        return reply.model_copy(update={"faults": move.faults, "usage": move.usage})

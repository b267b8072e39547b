"""Plays the shipped worlds through their tools: it knows what a player is told, and nothing of the worlds' code."""

from opencode_env.scripted_model.label import LABEL
from opencode_env.scripted_model.players import desk, lake, tracker
from opencode_env.scripted_model.reply import Reply
from opencode_env.scripted_model.request import ChatRequest

_PLAYERS = {"frozen_lake_move": lake.play, "tracker_finish": tracker.play, "order_desk_find_orders": desk.play}
"""By a tool that only the player's world has."""


class WorldsPolicy:
    """Plays whichever shipped world a request offers the tools of, and for any other says what it is."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        for tool, play in _PLAYERS.items():
            if tool in request.tools:
                return play(request)
        return Reply(text=f"This is a {LABEL}; it plays the shipped worlds and was offered the tools of none.")

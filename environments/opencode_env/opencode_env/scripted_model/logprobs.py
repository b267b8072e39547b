"""The logprobs of a reply, for a request that asks for them.

A token is so many characters (`CHARACTERS_PER_TOKEN`) of what the model says, in the order in which it says it: there
are as many as the usage counts. Its logprob follows from its position, the same in every run.
"""

from dataclasses import dataclass

from pydantic import JsonValue

from opencode_env.scripted_model.reply import CHARACTERS_PER_TOKEN


@dataclass
class Logprobs:
    """The tokens of one reply as they come."""

    asked: bool
    _said: str = ""
    _tokens: int = 0

    def of(self, text: str, *, last: bool = False) -> dict[str, JsonValue] | None:
        """The `logprobs` of a piece: its tokens are those that end in it; with `last`, all that are left."""
        if not self.asked:
            return None
        said = self._said + text
        whole = len(said) if last else len(said) - len(said) % CHARACTERS_PER_TOKEN
        self._said = said[whole:]
        starts = range(0, whole, CHARACTERS_PER_TOKEN)
        return {"content": [self._entry(said[start : start + CHARACTERS_PER_TOKEN]) for start in starts]}

    def _entry(self, token: str) -> dict[str, JsonValue]:
        self._tokens += 1
        return {"token": token, "logprob": -(self._tokens % 8 + 1) / 8, "bytes": None, "top_logprobs": []}

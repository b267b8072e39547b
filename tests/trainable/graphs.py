"""Message graphs made by hand, with tokens that say where they come from."""

from typing import Any

Line = dict[str, Any]


def prompt(parent: int | None, *tokens: int) -> Line:
    """A message of the request: context, whatever it is."""
    return {
        "parent": parent,
        "message": {"role": "user", "content": "asked"},
        "token_ids": list(tokens),
        "mask": [False] * len(tokens),
    }


def answer(parent: int | None, *sampled: int, head: tuple[int, ...] = (), **changes: Any) -> Line:
    """A sampled message: `head` is the generation prompt before the sampled tokens."""
    return {
        "parent": parent,
        "message": {"role": "assistant", "content": "answered"},
        "sampled": True,
        "token_ids": [*head, *sampled],
        "mask": [False] * len(head) + [True] * len(sampled),
        "logprobs": [-token / 100 for token in sampled],
    } | changes

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


def calls(nodes: list[Line], model: str = "small", temperature: float = 0.7) -> list[Line]:
    """The calls that gave the answers of a sound graph, each with what its endpoint counted."""
    return [
        {
            "node": number,
            "model": model,
            "sampling": {"temperature": temperature},
            "usage": {
                "prompt_tokens": _before(nodes, number) - sum(node.get("mask", [])),
                "completion_tokens": sum(node.get("mask", [])),
            },
        }
        for number, node in enumerate(nodes)
        if node.get("sampled")
    ]


def _before(nodes: list[Line], number: int | None) -> int:
    """Tokens from the root to a node, its own included; a graph that is broken has none."""
    total, steps = 0, 0
    while number is not None and 0 <= number < len(nodes) and steps <= len(nodes):
        total, number, steps = total + len(nodes[number].get("token_ids", [])), nodes[number].get("parent"), steps + 1
    return total

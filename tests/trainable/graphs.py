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


def compacted() -> tuple[list[Line], Line]:
    """A conversation that was compacted twice, as OpenCode goes on after it, and what its trace says of that.

    A call whose answer crosses the threshold is carried over behind the summary, with its result, as a copy.
    """
    nodes = [
        prompt(None, 1), prompt(0, 2), answer(1, 3, 4), prompt(2, 5), answer(3, 6),
        prompt(None, 7), prompt(5, 8, 9), answer(6, 10, 11, 12),
        prompt(0, 13), prompt(8, 10, 11, 12), prompt(9, 6), prompt(10, 14), answer(11, 15), prompt(12, 16),
        answer(13, 17, 18), prompt(5, 19), answer(15, 20), prompt(8, 20), prompt(17, 21), answer(18, 22, 23),
    ]  # fmt: skip
    sections = [
        {"conversation": "ses_1", "first": first, "last": last, "tokens": tokens, "summary": summary}
        for first, last, tokens, summary in ((2, 4, 6, None), (12, 14, 11, 0), (19, 19, 6, 1))
    ]
    summaries = [{"conversation": "ses_1", "node": node, "planned": True, "used": True} for node in (7, 16)]
    return nodes, {"history": {"forks": 0, "first": [], "sections": sections, "summaries": summaries}}


def compacted_elsewhere() -> tuple[list[Line], Line]:
    """The same, where another seat's model made the summaries."""
    said = {"role": "assistant", "content": "So."}
    nodes = [
        prompt(None, 1), prompt(0, 2), answer(1, 3, 4), prompt(2, 5), answer(3, 6),
        prompt(0, 13), prompt(5, 10, 11, 12), prompt(6, 6), prompt(7, 14), answer(8, 15), prompt(9, 16),
        answer(10, 17, 18), prompt(5, 20), prompt(12, 21), answer(13, 22, 23),
    ]  # fmt: skip
    nodes[6]["message"] = nodes[12]["message"] = said
    info = compacted()[1]
    for section, (first, last) in zip(info["history"]["sections"], ((2, 4), (9, 11), (14, 14)), strict=True):
        section.update(first=first, last=last)
    for summary in info["history"]["summaries"]:
        summary.update(node=None, seat="summary", model="other", message=said)
    return nodes, info

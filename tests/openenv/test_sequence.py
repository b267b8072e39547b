"""A rollout as one sequence: what is kept of it, and what never becomes one."""

import pytest
from opencode_openenv.result import FlatSequence, RolloutResult, TrainingTrace, TrainingTurn, flat_sequence


def turn(
    node: str, prompt: list[int], said: list[int], parent: str | None = None, role: str = "main", program: bool = False
) -> TrainingTurn:
    """A turn whose logprobs tell its tokens."""
    return TrainingTurn(
        node_id=node,
        prompt_token_ids=prompt,
        completion_token_ids=said,
        per_token_logps=[-float(token) for token in said],
        loss_mask=[0] * len(prompt) + [0 if program else 1] * len(said),
        metadata={"role": role, "parent": parent, "program": program},
    )


def rollout(*turns: TrainingTurn, reward: float | None = 1.0) -> RolloutResult:
    """A result with these turns."""
    return RolloutResult(reward=reward, training_trace=TrainingTrace(turns=list(turns)))


FIRST = turn("a", [1], [2])
SEQUENCES = {
    "turns that continue each other": (
        (turn("a", [1, 2], [3, 4]), turn("b", [1, 2, 3, 4, 5], [6], "a")),
        FlatSequence([1, 2], [3, 4, 5, 6], [-3.0, -4.0, 0.0, -6.0], [1, 1, 0, 1], 0),
    ),
    "of a fork the branch of the last answer": (
        (
            FIRST,
            turn("left", [1, 2, 3], [4], "a"),
            turn("right", [1, 2, 5], [6], "a"),
            turn("end", [1, 2, 5, 6, 7], [8], "right"),
        ),
        FlatSequence([1], [2, 5, 6, 7, 8], [-2.0, 0.0, -6.0, 0.0, -8.0], [1, 0, 1, 0, 1], 1),
    ),
    "anew from a rewritten history": (
        (FIRST, turn("b", [9, 9], [8])),
        FlatSequence([9, 9], [8], [-8.0], [1], 1),
    ),
    "no calls of sub-agents and programs": (
        (FIRST, turn("sub", [7], [7], role="sub"), turn("program", [5], [5], program=True)),
        FlatSequence([1], [2], [-2.0], [1], 2),
    ),
}


@pytest.mark.parametrize(("turns", "found"), SEQUENCES.values(), ids=SEQUENCES)
def test_a_sequence_is_made_of(turns: tuple[TrainingTurn, ...], found: FlatSequence) -> None:
    assert flat_sequence(rollout(*turns)) == found


def test_what_must_not_be_trained_on_is_no_sequence() -> None:
    assert flat_sequence(rollout(FIRST, reward=None)) is None
    assert flat_sequence(RolloutResult(reward=1.0)) is None
    assert flat_sequence(rollout(turn("program", [5], [5], program=True))) is None
    assert flat_sequence(rollout(FIRST, reward=0.0)) == FlatSequence([1], [2], [-2.0], [1], 0)

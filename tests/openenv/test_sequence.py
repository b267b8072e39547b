"""A rollout as one sequence: what is kept of it, and what never becomes one."""

from opencode_openenv.result import RolloutResult
from opencode_openenv.sequence import flat_sequence
from opencode_openenv.training_trace import TrainingTrace, TrainingTurn


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


def test_turns_that_continue_each_other_are_one_sequence() -> None:
    found = flat_sequence(rollout(turn("a", [1, 2], [3, 4]), turn("b", [1, 2, 3, 4, 5], [6], "a")))
    assert found is not None
    assert (found.prompt_ids, found.completion_ids) == ([1, 2], [3, 4, 5, 6])
    assert found.env_mask == [1, 1, 0, 1]
    assert found.logprobs == [-3.0, -4.0, 0.0, -6.0]
    assert found.dropped_turns == 0


def test_of_a_fork_the_branch_of_the_last_answer_is_kept() -> None:
    turns = (
        turn("a", [1], [2]),
        turn("left", [1, 2, 3], [4], "a"),
        turn("right", [1, 2, 5], [6], "a"),
        turn("end", [1, 2, 5, 6, 7], [8], "right"),
    )
    found = flat_sequence(rollout(*turns))
    assert found is not None
    assert (found.prompt_ids, found.completion_ids) == ([1], [2, 5, 6, 7, 8])
    assert found.env_mask == [1, 0, 1, 0, 1]
    assert found.dropped_turns == 1


def test_a_rewritten_history_begins_the_sequence_anew() -> None:
    found = flat_sequence(rollout(turn("a", [1], [2]), turn("b", [9, 9], [8])))
    assert found is not None
    assert (found.prompt_ids, found.completion_ids, found.dropped_turns) == ([9, 9], [8], 1)


def test_calls_of_sub_agents_and_programs_are_no_part_of_it() -> None:
    found = flat_sequence(
        rollout(turn("a", [1], [2]), turn("sub", [7], [7], role="sub"), turn("program", [5], [5], program=True))
    )
    assert found is not None
    assert (found.completion_ids, found.dropped_turns) == ([2], 2)


def test_what_must_not_be_trained_on_is_no_sequence() -> None:
    assert flat_sequence(rollout(turn("a", [1], [2]), reward=None)) is None
    assert flat_sequence(RolloutResult(reward=1.0)) is None
    assert flat_sequence(rollout(turn("program", [5], [5], program=True))) is None
    failed = flat_sequence(rollout(turn("a", [1], [2]), reward=0.0))
    assert failed is not None
    assert failed.completion_ids == [2]

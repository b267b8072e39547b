"""A training trace as one sequence, for trainers that know nothing else, such as TRL's `rollout_func`.

What that shape cannot say is decided here: of a rollout with forks the branch of the last answer is kept, because it is
the one whose end was scored; calls of sub-agents and of programs are not part of it; a rollout without a reward, or
without token ids, has no sequence, because a reward of 0 would teach that the infrastructure's failure was the
policy's.
"""

from dataclasses import dataclass

from opencode_openenv.result import RolloutResult
from opencode_openenv.training_trace import TrainingTurn


@dataclass(frozen=True)
class FlatSequence:
    """One prompt, and all that came after it; the last three are as long as each other."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    """0.0 for a token that was not sampled."""
    env_mask: list[int]
    """1 for a token that the policy sampled, 0 for one of a tool's result or of the template."""
    dropped_turns: int
    """Sampled answers that are not in it: of other branches, sub-agents and programs."""


def flat_sequence(result: RolloutResult) -> FlatSequence | None:
    """The rollout as one sequence; None where it must not be trained on."""
    if result.reward is None or result.training_trace is None:
        return None
    turns = {turn.node_id: turn for turn in result.training_trace.turns if turn.metadata.get("role") == "main"}
    own = [turn for turn in turns.values() if any(turn.loss_mask)]
    if not own:
        return None
    branch = _branch(turns, own[-1])
    prompt, last = branch[0].prompt_token_ids, branch[-1]
    whole = [*last.prompt_token_ids, *last.completion_token_ids]
    logprobs, mask = [0.0] * len(whole), [0] * len(whole)
    for turn in branch:
        start, end = len(turn.prompt_token_ids), len(turn.prompt_token_ids) + len(turn.completion_token_ids)
        logprobs[start:end], mask[start:end] = turn.per_token_logps, turn.loss_mask[start:]
    return FlatSequence(
        prompt_ids=prompt,
        completion_ids=whole[len(prompt) :],
        logprobs=logprobs[len(prompt) :],
        env_mask=mask[len(prompt) :],
        dropped_turns=len(result.training_trace.turns) - len(branch),
    )


def _branch(turns: dict[str, TrainingTurn], last: TrainingTurn) -> list[TrainingTurn]:
    """The turns whose tokens lead to the last one, first to last."""
    found: list[TrainingTurn] = []
    turn: TrainingTurn | None = last
    while turn is not None:
        found.append(turn)
        turn = turns.get(turn.metadata["parent"] or "")
    return found[::-1]

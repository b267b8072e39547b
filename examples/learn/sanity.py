"""What must hold in every step of a sound run, whatever the policy does, and the name of what does not."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from opencode_runs.trainable.samples import TrainingSample

from examples.learn.curriculum import PARTS, PLACEHOLDERS, Curriculum, Filling, fill, trained
from examples.learn.grpo import Measured
from examples.learn.rollouts import Rollout, problem_of
from examples.learn.transcript import Transcript, turns

FLOAT_ERROR = 1e-3
"""Of a log-probability. A batch with a cache and one without add up the same numbers in different orders."""

CALL = "<tool_call>"

Answers = Counter[tuple[int, ...]]
"""How often the model said what, in tokens."""


def findings(rollouts: Sequence[Rollout], measured: Measured) -> list[str]:
    """What is wrong with a step, before its update; empty if nothing is."""
    found = []
    if not measured.mismatch <= FLOAT_ERROR:
        found.append(
            "the importance ratio before the first update is not 1 (log-probabilities differ by "
            f"{measured.mismatch:.2g}): mask, log-probabilities or policy are not those of sampling"
        )
    if forks := sum(rollout.forks for rollout in rollouts):
        found.append(f"{forks} forks: a history came back that was not what was sampled")
    if wrong := sum(not abs(rollout.reward - rollout.derived) <= 1e-6 for rollout in rollouts):
        found.append(f"{wrong} rewards are not what their own verify commands say")
    return found


def unsaid(rollouts: Sequence[Rollout], given: Answers, *, every: bool) -> list[str]:
    """What is trained and was not said in this step, or the reverse: masks, samples that were dropped or repeated.

    Args:
        rollouts: of the step.
        given: what the model said in it.
        every: whether all that it said is to be trained; of a step in which a rollout failed, it is not.
    """
    trained: Answers = Counter(
        answer for rollout in rollouts for sample in rollout.samples for answer in _answers(sample)
    )
    found = []
    if strange := (trained - given).total():
        found.append(f"{strange} answers are trained that the model did not give in this step")
    if every and not any(rollout.error for rollout in rollouts) and (missing := (given - trained).total()):
        found.append(f"{missing} answers that the model gave are not trained")
    return found


def unearned(
    rollouts: Sequence[Rollout], curriculum: Curriculum, recorded: Sequence[Transcript], tokenizer: Any
) -> list[str]:
    """Rewards that are not what the rollout's own trained tokens are worth, where these are of the cloned format."""
    wrong = 0
    for rollout in rollouts:
        written = _written(rollout, trained(recorded, curriculum), tokenizer)
        answer = fill(curriculum.answer, written or {})
        if not any(placeholder in answer for placeholder in PLACEHOLDERS):
            worth = curriculum.problem(problem_of(rollout.group)).reward(answer)
            wrong += not abs(rollout.reward - worth) <= 1e-6
    return [f"{wrong} rewards are not what their own trained answers are worth"] if wrong else []


def _answers(sample: TrainingSample) -> list[tuple[int, ...]]:
    return [tokens for own, tokens in turns(sample) if own]


def _written(rollout: Rollout, recorded: Sequence[Transcript], tokenizer: Any) -> Filling | None:
    """What a rollout wrote whose commands are those of the format; None: that cannot be told without a shell.

    Of conversations that do not train, what they wrote is not known.
    """
    if len(rollout.samples) != len(recorded):
        return None
    written = dict.fromkeys(PARTS, "")
    for sample, transcript in zip(rollout.samples, recorded, strict=True):
        text = tokenizer.decode(sample.token_ids)
        answers = transcript.answers(text)
        read = [transcript.read(answer, turn) if answer.isascii() else None for turn, answer in enumerate(answers)]
        going = [*read, None].index(None)
        calls = sum(answer.count(CALL) for answer in answers[:going])
        if not going or text.count(CALL) != transcript.given[0].count(CALL) + calls:
            return None
        written |= {placeholder: text for found in read[:going] for placeholder, text in (found or {}).items()}
    return written

"""Every answer of a step is trained once and as it was given, and earned its own rollout's reward."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from opencode_runs.trainable.samples import TrainingSample

from examples.learn.bare import play_bare
from examples.learn.contextual import WORDS, Contextual
from examples.learn.curriculum import CONTENT, QUESTION, fill
from examples.learn.rollouts import Rollout
from examples.learn.sanity import Answers, unearned, unsaid
from examples.learn.spoken import Spoken
from examples.learn.tokenizer import ASSISTANT, END, build_tokenizer
from tests.learn.setting import RECORDED

Change = Callable[[list[Rollout]], list[Rollout]]


def played() -> tuple[list[Rollout], Answers, Any]:
    """Two rollouts of each problem, the first of them right, what was said in them, and its tokenizer."""
    words, given = build_tokenizer(RECORDED.constants, [RECORDED.rest]), Counter[tuple[int, ...]]()
    endings = {asked: [ending, "zz"] for asked, ending in WORDS}

    def speak(prompts: Sequence[Sequence[int]]) -> list[Spoken]:
        said = []
        for text in map(words.decode, prompts):
            turn = text.count(ASSISTANT) - 1
            (asked,) = (one for one in endings if f"\n{one}<" in text)
            filling = {QUESTION: asked, CONTENT: endings[asked].pop(0)} if not turn else {}
            tokens = words.encode(fill(RECORDED.said[turn], filling), add_special_tokens=False)
            said.append(Spoken(tokens, [-1.0] * len(tokens), stopped=True))
        given.update(tuple(one.tokens) for one in said)
        return said

    curriculum = Contextual()
    problems = [(one.name, one) for one in curriculum.fresh(random.Random(0), len(WORDS)) for _ in range(2)]
    return play_bare(speak, [RECORDED], words, curriculum, problems), given, words


def masks(change: Callable[[list[bool]], None]) -> Change:
    def changed(rollouts: list[Rollout]) -> list[Rollout]:
        (sample,) = rollouts[0].samples
        mask = list(sample.mask)
        change(mask)
        return [replace(rollouts[0], samples=[replace(sample, mask=mask)]), *rollouts[1:]]

    return changed


def without_first_turn(mask: list[bool]) -> None:
    for place in range(mask.index(True), mask.index(False, mask.index(True))):
        mask[place] = False


def swapped(*names: str) -> Change:
    """The first two rollouts, which are of one group, have each other's."""

    def change(rollouts: list[Rollout]) -> list[Rollout]:
        one, other, *rest = rollouts
        return [
            replace(one, **{name: getattr(other, name) for name in names}),
            replace(other, **{name: getattr(one, name) for name in names}),
            *rest,
        ]

    return change


NOT_GIVEN, NOT_TRAINED, UNEARNED = "did not give", "are not trained", "their own trained answers"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (list, []),
        (masks(lambda mask: mask.__setitem__(mask.index(True), False)), [NOT_GIVEN, NOT_TRAINED]),
        (masks(without_first_turn), [NOT_TRAINED]),
        (lambda rollouts: [replace(rollouts[0], samples=[]), *rollouts[1:]], [NOT_TRAINED]),
        (lambda rollouts: [replace(rollouts[0], samples=[*rollouts[0].samples] * 2), *rollouts[1:]], [NOT_GIVEN]),
        (swapped("samples"), [UNEARNED]),
        (swapped("reward", "derived"), [UNEARNED]),
        (lambda rollouts: [Rollout(rollouts[0].group, error="gone"), *rollouts[1:]], []),
    ],
    ids=["sound", "first token", "first turn", "dropped", "twice", "samples", "rewards", "failed"],
)
def test_a_mistake_that_leaves_every_ratio_at_one_is_named(change: Change, says: list[str]) -> None:
    rollouts, given, words = played()
    rollouts = change(rollouts)
    found = [*unsaid(rollouts, given, every=True), *unearned(rollouts, Contextual(), [RECORDED], words)]
    assert [any(word in one for one in found) for word in says] == [True] * len(says)
    assert len(found) == len(says)


def test_what_only_a_shell_can_tell_is_not_judged() -> None:
    rollouts, _, words = played()
    (sample,) = rollouts[0].samples
    more = words.encode(f"<tool_call>rm answer.txt</tool_call>{END}", add_special_tokens=False)
    longer = TrainingSample(
        0, (), (), [*sample.token_ids, *words.encode("\n"), *more],
        [*sample.mask, False, *[True] * len(more)], [*sample.logprobs, 0.0, *[-1.0] * len(more)],
    )  # fmt: skip
    assert unearned([replace(rollouts[0], reward=0.0)], Contextual(), [RECORDED], words)
    assert not unearned([replace(rollouts[0], reward=0.0, samples=[longer])], Contextual(), [RECORDED], words)

"""Records one real rollout of a script, from which the format is cloned."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opencode_env.agents.opencode import OpenCodeHarnessConfig

from examples.learn.curriculum import KEY, QUESTION, Curriculum, Problem
from examples.learn.engine import Engine
from examples.learn.rollouts import MODEL, Rollout, compacting, playing
from examples.learn.spoken import Spoken
from examples.learn.tokenizer import ASSISTANT, END, build_tokenizer, save
from examples.learn.transcript import Transcript

FULL = 7_000
"""Tokens of single bytes from which on a conversation is compacted: the system prompt is a good part of them."""


async def record(curriculum: Curriculum, directory: Path) -> list[Transcript]:
    """Play a curriculum's scripts once, in tokens of single bytes; the tokenizer stays in the directory.

    Returns:
        each conversation, the agent's first.

    Raises:
        RuntimeError: the rollout failed, or its conversations are not those of the scripts.
    """
    tokenizer = build_tokenizer()
    rollout = await play_scripts(curriculum, tokenizer, save(tokenizer, directory))
    if rollout.error or rollout.reward != 1.0 or len(rollout.samples) != len(curriculum.scripts):
        raise RuntimeError(f"the scripts of this curriculum do not play: {rollout}")
    return [Transcript.of(sample, tokenizer) for sample in rollout.samples]


async def play_scripts(
    curriculum: Curriculum, tokenizer: Any, directory: Path, kind: type[OpenCodeHarnessConfig] = OpenCodeHarnessConfig
) -> Rollout:
    """One rollout in which the scripts speak, with their placeholders as they stand.

    Args:
        curriculum: whose scripts.
        tokenizer: of their tokens.
        directory: where that was saved.
        kind: class of the harness's configuration, where there are no sub calls.
    """
    scripts = curriculum.scripts
    problem = Problem("recorded", QUESTION, curriculum.answer, key=KEY if curriculum.sub_calls else "")
    options: dict[str, Any] = {}
    if curriculum.summaries:
        problem = replace(problem, prepared=curriculum.problem(KEY).prepared)
        options = compacting(FULL, "trained")
    in_order = iter([text for script in scripts for text in script])

    def speak(prompts: Sequence[Sequence[int]]) -> list[Spoken]:
        said = []
        for text in map(tokenizer.decode, prompts):
            if curriculum.summaries:
                answer = next(in_order)
            else:
                answer = scripts[0 if QUESTION in text else 1][text.count(ASSISTANT) - 1]
            said.append(tokenizer.encode(answer + END, add_special_tokens=False))
        return [Spoken(tokens, [-1.0] * len(tokens), stopped=True) for tokens in said]

    async with (
        Engine(speak, MODEL).serving() as url,
        playing(url, directory, 1, kind, "trained" if curriculum.sub_calls else "", options=options) as player,
    ):
        (rollout,) = await player.play([("recorded", problem)])
        return rollout

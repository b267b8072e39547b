"""Records one real rollout of a script, from which the format is cloned."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opencode_env.agents.opencode import OpenCodeHarnessConfig

from examples.learn.curriculum import KEY, QUESTION, Curriculum, Problem
from examples.learn.engine import Engine
from examples.learn.rollouts import MODEL, Rollout, playing
from examples.learn.spoken import Spoken
from examples.learn.tokenizer import ASSISTANT, END, build_tokenizer, save
from examples.learn.transcript import Transcript


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
    key = KEY if len(scripts) > 1 else ""

    def speak(prompts: Sequence[Sequence[int]]) -> list[Spoken]:
        said = []
        for text in map(tokenizer.decode, prompts):
            script = scripts[0 if QUESTION in text else 1]
            said.append(tokenizer.encode(script[text.count(ASSISTANT) - 1] + END, add_special_tokens=False))
        return [Spoken(tokens, [-1.0] * len(tokens), stopped=True) for tokens in said]

    async with (
        Engine(speak, MODEL).serving() as url,
        playing(url, directory, 1, kind, "trained" if key else "") as player,
    ):
        (rollout,) = await player.play([("recorded", Problem("recorded", QUESTION, curriculum.answer, key=key))])
        return rollout

"""Records one real rollout of a script, from which the format is cloned."""

from collections.abc import Sequence
from pathlib import Path

from examples.learn.curriculum import Curriculum, Problem
from examples.learn.engine import Engine
from examples.learn.model import Spoken
from examples.learn.rollouts import MODEL, playing
from examples.learn.tokenizer import ASSISTANT, END, build_tokenizer, save
from examples.learn.transcript import CONTENT, QUESTION, Transcript


async def record(curriculum: Curriculum, directory: Path) -> Transcript:
    """Play a curriculum's script once, in tokens of single bytes; the tokenizer stays in the directory.

    Raises:
        RuntimeError: the rollout failed, or is more than one branch.
    """
    tokenizer = build_tokenizer()
    script = curriculum.script(QUESTION, CONTENT)
    problem = Problem("recorded", QUESTION, curriculum.answer(QUESTION, CONTENT))

    def speak(prompts: Sequence[Sequence[int]]) -> list[Spoken]:
        turns = [tokenizer.decode(prompt).count(ASSISTANT) - 1 for prompt in prompts]
        said = [tokenizer.encode(script[turn] + END, add_special_tokens=False) for turn in turns]
        return [Spoken(tokens, [-1.0] * len(tokens), stopped=True) for tokens in said]

    async with (
        Engine(speak, MODEL).serving() as url,
        playing(url, save(tokenizer, directory), at_once=1) as player,
    ):
        (rollout,) = await player.play([(problem.name, problem)])
    if rollout.error or rollout.reward != 1.0 or len(rollout.samples) != 1:
        raise RuntimeError(f"the script of this curriculum does not play: {rollout}")
    return Transcript.of(rollout.samples[0], tokenizer)

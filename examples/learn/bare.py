"""The same rollouts without OpenCode: a function in place of agent, sandbox, interception, client and scoring.

It knows the commands that answer. What the model is given between its answers comes from the recorded rollout.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from opencode_runs.traces.record import SCHEMA_VERSION
from opencode_runs.trainable.samples import TrainingSample

from examples.learn.curriculum import KEY, PARTS, QUESTION, Curriculum, Problem, fill, trained
from examples.learn.rollouts import Rollout
from examples.learn.spoken import Speaker, Spoken
from examples.learn.transcript import Transcript


def play_bare(
    speak: Speaker,
    recorded: Sequence[Transcript],
    tokenizer: Any,
    curriculum: Curriculum,
    problems: Sequence[tuple[str, Problem]],
) -> list[Rollout]:
    """One rollout of each problem, with the name of its group."""
    empty = dict.fromkeys(PARTS, "")
    known = [{**empty, QUESTION: problem.question, KEY: problem.key} for _, problem in problems]
    samples: list[list[TrainingSample]] = [[] for _ in problems]
    trains = trained(recorded, curriculum)
    turns: list[dict[int, Problem]] = [{} for _ in problems]
    answering = list(range(len(problems)))
    for transcript in recorded:
        talks = [problems[row][1].turn or _Talk(known[row]) for row in answering]
        talks = [talk.kept(talk.begun) for talk in talks]
        _converse(speak, transcript, tokenizer, talks)
        for row, talk in zip(answering, talks, strict=True):
            known[row] = talk.known
            samples[row] += [TrainingSample(0, (), (), talk.tokens, talk.mask, talk.logprobs)] * (transcript in trains)
            turns[row] |= {turn + 1: replace(problems[row][1], turn=kept) for turn, kept in talk.turns.items()}
        whole = bool(curriculum.summaries)  # only a conversation that came to its end was compacted there
        answering = [
            row
            for row, talk in zip(answering, talks, strict=True)
            if talk.answered and not (whole and talk.ended and transcript is not recorded[-1])
        ]
    rewards = [0.0] * len(problems)
    for row in answering:
        rewards[row] = problems[row][1].reward(fill(curriculum.answer, known[row]))
    return [
        Rollout(group, reward, said, derived=reward, line=episode_line(problem, reward), turns=kept)
        for (group, problem), reward, said, kept in zip(problems, rewards, samples, turns, strict=True)
    ]


def episode_line(problem: Problem, reward: float) -> str:
    """What `opencode-difficulty` reads of an episode."""
    trace = {
        "version": SCHEMA_VERSION,
        "ok": True,
        "nodes": [{"sampled": True}],
        "rewards": {"verify": {"score": reward}},
    }
    task = {"key": problem.name, "data": {"id": problem.name, "prompt": problem.question}}
    episode = {"id": uuid4().hex, "env": {"id": "bare"}, "task": task, "ok": True, "traces": [trace]}
    return json.dumps(episode)


class _Talk:
    """One conversation that is being held, or was kept at a turn of it."""

    def __init__(self, known: dict[str, str], begun: int = 0) -> None:
        self.known = known
        self.begun = begun
        """How many answers came before it was kept."""
        self.turns: dict[int, _Talk] = {}
        self.tokens: list[int] = []
        self.mask: list[bool] = []
        self.logprobs: list[float] = []
        self.answered = begun > 0
        self.ended = False

    def kept(self, turn: int) -> "_Talk":
        """A conversation that goes on from here; nothing of what came before trains in it."""
        kept = _Talk(self.known, turn)
        kept.hear(self.tokens)
        return kept

    def hear(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.mask += [False] * len(tokens)
        self.logprobs += [0.0] * len(tokens)

    def say(self, spoken: Spoken) -> None:
        self.tokens += spoken.tokens
        self.mask += [True] * len(spoken.tokens)
        self.logprobs += spoken.logprobs


def _converse(speak: Speaker, transcript: Transcript, tokenizer: Any, talks: Sequence[_Talk]) -> None:
    """Hold conversations side by side; an answer that is not of the format ends its own."""
    for turn, given in enumerate(transcript.given):
        going = [talk for talk in talks if talk.begun <= turn and not talk.ended]
        if not going:
            continue
        for talk in going:
            talk.turns[turn] = talk.kept(turn)
            talk.hear(tokenizer.encode(fill(given, talk.known), add_special_tokens=False))
        for talk, spoken in zip(going, speak([talk.tokens for talk in going]), strict=True):
            talk.say(spoken)
            found = transcript.read(tokenizer.decode(spoken.tokens), turn)
            talk.answered |= found is not None
            talk.ended = found is None
            talk.known = {**talk.known, **(found or {})}

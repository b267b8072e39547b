"""The same rollouts without OpenCode: a function in place of agent, sandbox, interception, client and scoring.

It knows the one command that answers. What the model is given between its answers comes from the recorded rollout.
"""

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from opencode_runs.traces.record import SCHEMA_VERSION
from opencode_runs.trainable.samples import TrainingSample

from examples.learn.curriculum import KEY, QUESTION, Curriculum, Problem, fill
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
    known = [{QUESTION: problem.question, KEY: problem.key} for _, problem in problems]
    samples: list[list[TrainingSample]] = [[] for _ in problems]
    trained = recorded if curriculum.sub_calls != "frozen" else recorded[:1]
    answering = list(range(len(problems)))
    for transcript in recorded:
        talks = [_Talk(known[row]) for row in answering]
        _converse(speak, transcript, tokenizer, talks)
        for row, talk in zip(answering, talks, strict=True):
            known[row] = talk.known
            samples[row] += [TrainingSample(0, (), (), talk.tokens, talk.mask, talk.logprobs)] * (transcript in trained)
        answering = [row for row, talk in zip(answering, talks, strict=True) if talk.answered]
    rewards = [0.0] * len(problems)
    for row in answering:
        rewards[row] = problems[row][1].reward(fill(curriculum.answer, known[row]))
    return [
        Rollout(group, reward, said, derived=reward, line=episode_line(problem, reward))
        for (group, problem), reward, said in zip(problems, rewards, samples, strict=True)
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
    """One conversation that is being held."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        self.tokens: list[int] = []
        self.mask: list[bool] = []
        self.logprobs: list[float] = []
        self.answered = False

    def hear(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.mask += [False] * len(tokens)
        self.logprobs += [0.0] * len(tokens)

    def say(self, spoken: Spoken) -> None:
        self.tokens += spoken.tokens
        self.mask += [True] * len(spoken.tokens)
        self.logprobs += spoken.logprobs


def _converse(speak: Speaker, transcript: Transcript, tokenizer: Any, talks: Sequence[_Talk]) -> None:
    """Hold conversations side by side; one whose first answer is not of the format ends with it."""
    going = list(talks)
    for turn, given in enumerate(transcript.given):
        for talk in going:
            talk.hear(tokenizer.encode(fill(given, talk.known), add_special_tokens=False))
        for talk, spoken in zip(going, speak([talk.tokens for talk in going]), strict=True):
            talk.say(spoken)
            found = None if turn else transcript.read(tokenizer.decode(spoken.tokens))
            talk.answered |= found is not None
            talk.known = {**talk.known, **(found or {})}
        going = [talk for talk in going if talk.answered]
        if not going:
            return

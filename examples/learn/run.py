"""One run: clone, evaluate, learn, evaluate, plot."""

import asyncio
import math
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from opencode_env.agents.opencode import OpenCodeHarnessConfig

from examples.learn.bare import play_bare
from examples.learn.branching import branches
from examples.learn.breaking import Break, Breaker, NoEchoConfig
from examples.learn.checkpoint import cloned, keep
from examples.learn.curriculum import Curriculum, Problem, trained
from examples.learn.curve import HEADER, Step, rates, save_plot, terminal_plot
from examples.learn.engine import Engine
from examples.learn.grpo import Batch, Settings, Trainer, advantages, means
from examples.learn.model import Transformer, sample
from examples.learn.rollouts import LONGEST, MODEL, Rollout, compacting, keep_rollouts, playing
from examples.learn.sanity import Answers, findings, unearned, unsaid
from examples.learn.spoken import Spoken
from examples.learn.tokenizer import END, build_tokenizer, save
from examples.learn.transcript import Transcript, full, of_the_format

PLAYED = 0.9
"""Of an evaluation's rollouts, the part that must not fail."""

Play = Callable[[Sequence[tuple[str, Problem]]], Awaitable[list[Rollout]]]
"""Plays each problem once, with the name of its group."""


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    curriculum: Curriculum
    directory: Path
    """Where the run's files go."""
    cache: Path
    """Where cloned policies are kept."""
    seed: int = 0
    steps: int = 18
    groups: int = 4
    """Problems of a step."""
    size: int = 8
    """Rollouts of each problem."""
    at_once: int = 3
    evaluated: tuple[int, int] = (100, 64)
    """Rollouts of the evaluations, of the cloned policy and of the trained one."""
    broken: Break | None = None
    bare: bool = False
    """Whether a function stands in place of the environment."""
    enough: Callable[[Sequence[Step]], bool] = lambda steps: False
    """Whether training can end after these steps."""
    watched: int = 0
    """Rollouts that evaluate the policy after each step, all with a function in place of the environment."""
    branch: bool = False
    """Whether half of the groups go on from kept turns, as far as there are any."""


@dataclass
class Outcome:
    """What came of it."""

    cloned: float = math.nan
    """Mean reward of the cloned policy."""
    trained: float = math.nan
    """Mean reward of fresh rollouts at the end; not a number if the run did not get there."""
    first: Sequence[Rollout] = ()
    """Those of the evaluation of the cloned policy."""
    steps: Sequence[Step] = ()
    findings: Sequence[str] = ()
    """What was wrong, step by step."""

    def rollouts_to(self, goal: float) -> int | None:
        """Training rollouts at the first two steps whose mean reward reaches the goal."""
        for last, step in pairwise(self.steps):
            if last.reward + step.reward >= 2 * goal:
                return step.rollouts
        return None


class Run:
    """Carries a plan out, from the recorded conversations of its curriculum; `say` gets its lines."""

    _words: Any
    _bare: Play
    _weights: Mapping[str, Any]
    """Of the policy after its last update."""

    def __init__(self, plan: Plan, recorded: Sequence[Transcript], say: Callable[[str], None]) -> None:
        self.plan = plan
        self.recorded = recorded
        self.outcome = Outcome()
        self._say = say
        self._draw = random.Random(plan.seed)
        self._noise = torch.Generator().manual_seed(plan.seed)
        self._given: Answers = Counter()
        self._rollouts: Sequence[Rollout] = ()

    async def go(self) -> Outcome:
        """The whole run; however it ends, the checkpoint `policy.pt`, if there is one, is that of its last update."""
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        kept = self.plan.directory / "policy.pt"
        for old in (kept, self.plan.directory / "learn.png"):
            old.unlink(missing_ok=True)
        for folder in ("rollouts", "kept"):
            shutil.rmtree(self.plan.directory / folder, ignore_errors=True)
        recorded = self.recorded
        words = build_tokenizer([text for one in recorded for text in one.constants], [one.rest for one in recorded])
        save(words, self.plan.directory / "tokenizer")
        started = time.monotonic()
        args = (recorded, self.plan.curriculum, words, self.plan.seed, self.plan.cache)
        policy, cached = await asyncio.to_thread(cloned, *args)
        how = "from the cache" if cached else f"in {time.monotonic() - started:.0f} s"
        parameters = sum(weight.numel() for weight in policy.parameters())
        self._say(f"cloned the format {how}: {parameters:,} parameters, {len(words)} tokens")
        self._words = words
        self._weights = deepcopy(policy.state_dict())
        try:
            async with self._play(policy, words) as play:
                await self._learn(policy, play)
        finally:
            keep(self._weights, kept)
            self._say(f"the policy is in {kept}")
        return self.outcome

    @asynccontextmanager
    async def _play(self, policy: Transformer, words: Any) -> AsyncIterator[Play]:
        """Plays with the policy as it is then."""
        stops = frozenset({words.convert_tokens_to_ids(END)})

        def speak(prompts: Sequence[Sequence[int]]) -> list[Spoken]:
            said = sample(policy, prompts, stops, LONGEST, self._noise)
            self._given.update(tuple(one.tokens) for one in said if one.tokens)
            return said

        async def bare(problems: Sequence[tuple[str, Problem]]) -> list[Rollout]:
            return await asyncio.to_thread(play_bare, speak, self.recorded, words, self.plan.curriculum, problems)

        self._bare = bare
        if self.plan.bare:
            yield bare
            return
        kind = NoEchoConfig if self.plan.broken is Break.ECHO else OpenCodeHarnessConfig
        directory, kept = self.plan.directory / "tokenizer", self.plan.directory.resolve() / "kept"
        summaries = self.plan.curriculum.summaries
        options = compacting(full(self.recorded, words), summaries) if summaries else {}
        args = self.plan.at_once, kind, self.plan.curriculum.sub_calls, kept if self.plan.branch else None, options
        async with (
            Engine(speak, MODEL).serving() as url,
            playing(url, directory, *args) as player,
            self.training(url),
        ):
            yield player.play

    @asynccontextmanager
    async def training(self, url: str) -> AsyncIterator[None]:
        """What else the run needs over its engine."""
        yield

    async def rollouts(self, play: Play) -> Sequence[Rollout]:
        """Those of one step."""
        kept = branches(self._rollouts, self._draw, self.plan.groups // 2) if self.plan.branch else []
        problems = self.plan.curriculum.problems(self._draw, self.plan.groups - len(kept))
        groups = [*((problem.name, problem) for problem in problems), *kept]
        return await play([group for group in groups for _ in range(self.plan.size)])

    def not_of(self, rollouts: Sequence[Rollout], gains: Sequence[float]) -> list[str]:
        """What is wrong with what the update learns from, if that is not these rollouts and advantages themselves."""
        return []

    def update(self, trainer: Trainer, batch: Batch, done: float) -> None:
        """Learn from them; `done` is the part of the run that lies behind, 0 to 1."""
        trainer.learn(batch, done)

    async def _learn(self, policy: Transformer, play: Play) -> None:
        curriculum, outcome = self.plan.curriculum, self.outcome
        outcome.cloned, outcome.first = await self._evaluate(play, self.plan.evaluated[0])
        if outcome.first:
            self._say(f"cloned policy: reward {outcome.cloned:.2f}, chance is {curriculum.chance:.2f}")
        trainer, breaker = (
            Trainer(policy, Settings(anchor=curriculum.anchor)),
            Breaker(self.plan.broken, self.plan.seed),
        )
        if not self.plan.steps:
            return
        self._say(HEADER)
        for number in range(1, self.plan.steps + 1):
            await self._step(number, trainer, breaker, play)
            if self.plan.enough(outcome.steps):
                break
        outcome.trained, last = await self._evaluate(play, self.plan.evaluated[1])
        self._say(f"{terminal_plot(outcome.steps)}\n{rates(outcome.steps)}")
        first, final = outcome.steps[0].reward, outcome.steps[-1].reward
        title = f"{type(curriculum).__name__}: {first:.2f} to {final:.2f}"
        save_plot(outcome.steps, curriculum.chance, title, self.plan.directory / "learn.png")
        if last:
            played = sum(not rollout.error for rollout in last)
            self._say(f"trained policy: reward {outcome.trained:.2f} on {played} fresh rollouts")

    async def _evaluate(self, play: Play, count: int) -> tuple[float, list[Rollout]]:
        """The mean reward of fresh rollouts, and these; not a number without any, and if many failed."""
        if not count:
            return math.nan, []
        self._say(f"playing {count} fresh rollouts")
        rollouts = await play([(problem.name, problem) for problem in self.plan.curriculum.fresh(self._draw, count)])
        rewards = [rollout.reward for rollout in rollouts if not rollout.error]
        if len(rewards) < count:
            why = next(rollout.error for rollout in rollouts if rollout.error)
            self._say(f"{count - len(rewards)} rollouts of the evaluation failed, the first one with: {why}")
        return sum(rewards) / len(rewards) if len(rewards) >= PLAYED * count else math.nan, rollouts

    async def _watch(self) -> float:
        """The mean reward of fresh rollouts without the environment; not a number if none are wanted."""
        if not self.plan.watched:
            return math.nan
        problems = self.plan.curriculum.fresh(self._draw, self.plan.watched)
        return means(await self._bare([("", problem) for problem in problems]))[""]

    async def _step(self, number: int, trainer: Trainer, breaker: Breaker, play: Play) -> None:
        started, curriculum = time.monotonic(), self.plan.curriculum
        self._given.clear()
        rollouts = self._rollouts = breaker(await self.rollouts(play))
        sampled = sum(len(answer) * times for answer, times in self._given.items())
        keep_rollouts(self.plan.directory, number, rollouts)
        rewards = [rollout.reward for rollout in rollouts if not rollout.error]
        if not rewards:
            raise RuntimeError(f"every rollout of step {number} failed, the first one with: {rollouts[0].error}")
        after = time.monotonic()
        gains = advantages(rollouts)
        samples = [rollout.samples for rollout in rollouts]
        if curriculum.summaries:
            said = trained(self.recorded, curriculum)
            samples = [of_the_format(one, said, self._words) for one in samples]
        pairs = [(one, gain) for ones, gain in zip(samples, gains, strict=True) for one in ones]
        played = sum(bool(rollout.samples) for rollout in rollouts)
        batch = Batch.of([one for one, _ in pairs], [gain for _, gain in pairs], played)
        measured = await asyncio.to_thread(trainer.measure, batch)
        found = [
            *findings(rollouts, measured),
            *unsaid(rollouts, self._given, every="frozen" not in (curriculum.sub_calls, curriculum.summaries)),
            *unearned(rollouts, curriculum, self.recorded, self._words),
            *self.not_of(rollouts, gains),
        ]
        await asyncio.to_thread(self.update, trainer, batch, (number - 1) / self.plan.steps)
        self._weights = deepcopy(trainer.model.state_dict())
        learnt = time.monotonic()
        fresh = await self._watch()
        stages = sum((Counter(rollout.stages) for rollout in rollouts), Counter[str]())
        of_group = means(rollouts)
        step = Step(
            number, number * len(rollouts), sum(rewards) / len(rewards),
            len({rollout.group for rollout, gain in zip(rollouts, gains, strict=True) if gain}), len(of_group),
            measured.tokens, measured.mismatch, measured.entropy,
            len(rollouts) - len(rewards), sum(rollout.forks for rollout in rollouts),
            {"play": after - started, "learn": learnt - after, **stages}, of_group, sampled, fresh,
        )  # fmt: skip
        self.outcome.steps = [*self.outcome.steps, step]
        self.outcome.findings = [*self.outcome.findings, *(f"step {number}: {one}" for one in found)]
        watched = [f"     {step.fresh:.2f} on fresh rollouts, {sampled} tokens sampled"] * (self.plan.watched > 0)
        for line in (step.line(), *watched, *(f"     not sound: {one}" for one in found)):
            self._say(line)

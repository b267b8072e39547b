"""What a run leaves and keeps, and what makes it start anew."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples.learn import contextual
from examples.learn.checkpoint import key_of
from examples.learn.contextual import Contextual
from examples.learn.curriculum import Curriculum, Problem
from examples.learn.mixture import Mixture
from examples.learn.rollouts import Rollout
from examples.learn.run import Plan, Play, Run
from examples.learn.tokenizer import build_tokenizer
from tests.learn.setting import RECORDED


def plan_in(directory: Path) -> Plan:
    return Plan(Contextual(), directory, directory / "cache", steps=1, groups=4, size=4, evaluated=(0, 10), bare=True)


class Failing(Run):
    """Of whose evaluation some rollouts fail."""

    fail = 0

    async def _evaluate(self, play: Play, count: int) -> tuple[float, list[Rollout]]:
        async def playing(problems: Sequence[tuple[str, Problem]]) -> list[Rollout]:
            played = await play(problems)
            return [replace(one, error="gone") for one in played[: self.fail]] + played[self.fail :]

        return await super()._evaluate(playing, count)


class Interrupted(Run):
    """Which ends before its first step."""

    async def rollouts(self, play: Play) -> Sequence[Rollout]:
        raise KeyboardInterrupt


def test_the_survivors_of_an_evaluation_do_not_speak_for_it(tmp_path: Path) -> None:
    lines: list[str] = []
    run = Failing(plan_in(tmp_path), [RECORDED], lines.append)
    assert not math.isnan(asyncio.run(run.go()).trained)
    run.fail = 2
    assert math.isnan(asyncio.run(run.go()).trained)
    assert "2 rollouts of the evaluation failed, the first one with: gone" in lines
    assert lines[-2:] == [
        "trained policy: reward nan on 8 fresh rollouts", f"the policy is in {tmp_path / 'policy.pt'}",
    ]  # fmt: skip


def test_nothing_of_an_earlier_run_is_taken_for_this_ones(tmp_path: Path) -> None:
    asyncio.run(Run(plan_in(tmp_path), [RECORDED], lambda line: None).go())
    learnt = torch.load(tmp_path / "policy.pt", weights_only=True)
    assert (tmp_path / "learn.png").exists()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Interrupted(plan_in(tmp_path), [RECORDED], lambda line: None).go())
    cloned = torch.load(tmp_path / "policy.pt", weights_only=True)
    assert any(not torch.equal(learnt[name], cloned[name]) for name in learnt)
    assert not (tmp_path / "learn.png").exists()


@pytest.mark.parametrize("curriculum", [Contextual(), Mixture()], ids=["its own", "that of its base"])
def test_other_code_makes_another_clone(
    curriculum: Curriculum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = build_tokenizer()
    before = key_of([RECORDED], curriculum, words, 0)
    assert key_of([RECORDED], curriculum, words, 0) == before
    changed = tmp_path / "contextual.py"
    changed.write_text(f"{Path(contextual.__file__).read_text()}\n# more\n")
    monkeypatch.setattr(contextual, "__file__", str(changed))
    assert key_of([RECORDED], curriculum, words, 0) != before

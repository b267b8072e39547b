"""Groups from kept turns: what is offered, what trains of them, and what the comparison with beginnings says."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.learn import checkpoint
from examples.learn.bare import play_bare
from examples.learn.branching import branches
from examples.learn.comparing import Comparison, compare, mean_line
from examples.learn.copying import CopyByTurns
from examples.learn.curriculum import PARTS, Problem
from examples.learn.engine import Engine
from examples.learn.recording import record
from examples.learn.rollouts import MODEL, Rollout, playing
from examples.learn.run import Plan
from examples.learn.sanity import unearned
from examples.learn.spoken import Speaker, Spoken
from examples.learn.tokenizer import ASSISTANT, END, build_tokenizer, save
from examples.learn.transcript import Transcript
from tests.learn.setting import PROMPT

CURRICULUM = CopyByTurns()
PROBLEM = CURRICULUM.problem("ab")
RESULT = f"\n<|im_start|>user\n(no output)<|im_end|>\n{ASSISTANT}\n"
RECORDED = Transcript((PROMPT, RESULT, RESULT), tuple(text + END for text in CURRICULUM.scripts[0]))
FIRST, SECOND = (text.replace(part, "{}") for text, part in zip(CURRICULUM.scripts[0], PARTS, strict=False))
SAID = [FIRST.replace("{}", "1ab"), SECOND.replace("{}", "2bc"), "done", SECOND.replace("{}", "2bb"), "done"]
"""A rollout that gets nothing right, and another one from its second turn on, which gets that letter right."""


def saying(words: Any, texts: Sequence[str], heard: list[Sequence[int]]) -> Speaker:
    """Says these one after the other; notes what it is given."""
    left = [words.encode(text + END, add_special_tokens=False) for text in texts]

    def speak(prompts: Sequence[Sequence[int]]) -> list[Spoken]:
        heard.extend(map(list, prompts))
        said = [left.pop(0) for _ in prompts]
        return [Spoken(tokens, [-1.0] * len(tokens), stopped=True) for tokens in said]

    return speak


def check(trunk: Rollout, branch: Rollout, heard: list[Sequence[int]], words: Any, recorded: Transcript) -> None:
    """What holds of the two rollouts that `SAID` says."""
    assert [*trunk.turns] == [1, 2, 3]
    assert (trunk.reward, branch.reward, branch.derived) == (0.0, 0.5, 0.5)
    (sample,) = branch.samples
    assert heard[3] == heard[1] == sample.token_ids[: len(heard[1])]
    own = [token for text in SAID[3:] for token in words.encode(text + END, add_special_tokens=False)]
    assert [token for token, trains in zip(sample.token_ids, sample.mask, strict=True) if trains] == own
    assert not unearned([trunk, branch], CURRICULUM, [recorded], words)
    assert unearned([trunk, replace(branch, reward=0.0)], CURRICULUM, [recorded], words)


def offered(trunk: Rollout) -> list[tuple[str, Problem]]:
    """The one turn of it that is worth to go back to."""
    (branch,) = branches([trunk, replace(trunk, error="gone"), replace(trunk, reward=1.0)], random.Random(0), 4)
    assert branch[0] == "ab@0.2"
    return [branch]


def test_a_group_from_a_kept_turn_trains_what_was_sampled_behind_it_only() -> None:
    words, heard = build_tokenizer(RECORDED.constants, [RECORDED.rest]), list[Sequence[int]]()
    speak = saying(words, SAID, heard)
    (trunk,) = play_bare(speak, [RECORDED], words, CURRICULUM, [("ab", PROBLEM)])
    (branch,) = play_bare(speak, [RECORDED], words, CURRICULUM, offered(trunk))
    check(trunk, branch, heard, words, RECORDED)


@pytest.mark.usefixtures("sandboxes")
def test_so_it_is_with_real_opencode(tmp_path: Path) -> None:
    async def played() -> None:
        (recorded,) = await record(CURRICULUM, tmp_path / "bytes")
        words, heard = build_tokenizer(recorded.constants, [recorded.rest]), list[Sequence[int]]()
        where = save(words, tmp_path / "words")
        speak = saying(words, SAID, heard)
        async with Engine(speak, MODEL).serving() as url, playing(url, where, 1, kept=tmp_path / "kept") as player:
            (trunk,) = await player.play([("ab", PROBLEM)])
            (branch,) = await player.play(offered(trunk))
        assert not trunk.error + branch.error
        check(trunk, branch, heard, words, recorded)

    asyncio.run(played())


def test_both_runs_are_compared_by_the_tokens_that_they_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "STEPS", 1)
    plan = Plan(
        CURRICULUM, tmp_path, tmp_path / "cache", steps=2, groups=2, size=2, evaluated=(0, 0), bare=True, watched=4
    )
    found = asyncio.run(compare(plan, [RECORDED], goal=0.0))
    assert not found.findings
    assert found.branched == found.begun  # the goal is reached in the first step, in which nothing has been kept yet
    assert found.line().endswith("ratio 1.00")
    assert asyncio.run(compare(plan, [RECORDED], goal=1.1)).line() == (
        "seed 0: with kept turns did not reach it, without did not reach it, ratio -"
    )


def test_the_mean_of_ratios_is_geometric_and_says_of_how_many_seeds() -> None:
    compared = [Comparison(0, 200, 100), Comparison(1, 100, 200), Comparison(2, None, 300)]
    assert mean_line(compared).endswith(": 1.00 (2 of 3 seeds)")

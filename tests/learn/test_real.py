"""What reaches the trainer of rollouts of real OpenCode."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from examples.learn.breaking import NoEchoConfig
from examples.learn.carrying import Carry
from examples.learn.contextual import Contextual
from examples.learn.copying import Copy
from examples.learn.curriculum import Curriculum
from examples.learn.grpo import Measured
from examples.learn.recording import play_scripts, record
from examples.learn.recursion import Recursion
from examples.learn.sanity import findings
from examples.learn.tokenizer import END, build_tokenizer, save

pytestmark = pytest.mark.usefixtures("sandboxes")

SOUND = Measured(mismatch=0.0, entropy=0.0, tokens=1)


@pytest.mark.parametrize(
    "curriculum",
    [Contextual(), Copy(), Recursion(), Carry(), Carry("frozen", needed=False)],
    ids=["contextual", "copy", "recursion", "carry", "no carry"],
)
def test_each_conversation_trains_what_its_script_says_and_nothing_else(curriculum: Curriculum, tmp_path: Path) -> None:
    recorded = asyncio.run(record(curriculum, tmp_path))
    assert [one.said for one in recorded] == [tuple(text + END for text in script) for script in curriculum.scripts]


def test_a_sub_call_that_fails_is_an_error_and_no_lost_reward(tmp_path: Path) -> None:
    agent, _ = Recursion().scripts
    silent = replace(Recursion(), scripts=(agent, ()))
    tokenizer = build_tokenizer()
    rollout = asyncio.run(play_scripts(silent, tokenizer, save(tokenizer, tmp_path)))
    assert rollout.error.startswith("a sub call failed")
    assert not rollout.samples


def test_without_the_echo_repair_a_history_forks_and_that_is_named(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    rollout = asyncio.run(play_scripts(Contextual(), tokenizer, save(tokenizer, tmp_path), NoEchoConfig))
    assert not rollout.error
    assert rollout.forks == 1
    assert findings([rollout], SOUND) == ["1 forks: a history came back that was not what was sampled"]

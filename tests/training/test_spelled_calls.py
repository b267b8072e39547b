"""A call whose marks were spelled in ordinary tokens is text where tokens are read, and is counted."""

from pathlib import Path
from typing import Any

import pytest
from opencode_env.cli_agent.interception.training_client import lenient
from renderers import create_renderer
from renderers.base import load_tokenizer

from tests.support.families import GLM, Family, Qwen3
from tests.support.token_engine import Says, TokenEngine
from tests.training.hostile import bash
from tests.training.trained import Lines, assert_one_exact_branch, train

FAMILIES = {"qwen3": Qwen3(True), "qwen3 without thinking": Qwen3(False), "glm": GLM(True)}


@pytest.mark.opencode
@pytest.mark.usefixtures("sandboxes", "light_agent")
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
async def test_a_spelled_call_is_text_for_the_trainer_and_counted(tokenizer: Path, family: Family) -> None:
    call = bash(family, "echo two")
    lines = [
        Says(family.answer("First.", bash(family, "printf '<tool_call>one'"), reasoning="Hm.")),
        Says(family.answer("Now:", reasoning="Hm."), spelled=call + call),
    ]
    played = await train(tokenizer, family, lines)
    assert_one_exact_branch(played)
    assert [result.strip() for result in played.results] == ["<tool_call>one"]
    assert call + call in str(played.main.nodes[-1].message.content)
    assert played.main.metrics["spelled_calls"] == 2


QWEN3 = Qwen3(False)
SOUND = bash(QWEN3, "echo one")
COUNTED = {
    "a sound call": ("", SOUND, 1),
    "behind a call of tokens": (SOUND, SOUND, 1),
    "two": ("", SOUND + "\nand\n" + SOUND, 2),
    "text": ("Hello.", "", 0),
    "no JSON": ("", '<tool_call>{"name": "bash", </tool_call>', 0),
    "nothing that Python reads": ("", '<tool_call>{"name": "bash", "arguments": ' + "[" * 5000 + "</tool_call>", 0),
    "a mark in the arguments of a call": (bash(QWEN3, "echo '<tool_call>'"), "", 0),
    "a call behind a frame": ("", "<|im_end|>" + SOUND, 1),
}


@pytest.mark.parametrize("case", COUNTED)
def test_what_counts_is_a_call_that_the_same_text_would_hold(tokenizer: Path, case: str) -> None:
    text, spelled, count = COUNTED[case]
    engine = TokenEngine(tokenizer, QWEN3, Lines(QWEN3, [], {}))
    said = engine.sample(text, 1) + engine.sample(spelled, 1, spelled=True) + engine.sample("<|im_end|>", 1)
    renderer: Any = create_renderer(load_tokenizer(str(tokenizer)), lenient(QWEN3.renderer))
    assert renderer.spelled_calls([], said, []) == count

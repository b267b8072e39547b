"""A tokenizer from nothing: a token for each byte, each mark of the chat format, and what a recorded rollout repeats.

That is its system prompt (what OpenCode says about its working directory and its tools, 6 kB between two marks), and
each word of the rest. Nothing is to be learnt from their letters, and a model that reads them whole is done with a
prompt in a moment. Questions and contents, which differ from rollout to rollout, remain bytes.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

ASSISTANT = "<|im_start|>assistant"
END = "<|im_end|>"
FRAMES = ["<|im_start|>", END, "<|endoftext|>"]
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
SHORTEST = 4
"""Characters of what becomes a token."""

_MARK = re.compile("|".join(map(re.escape, [*FRAMES, *MARKS])))
_SPACE = re.compile(rf"\s+|{_MARK.pattern}")


def build_tokenizer(systems: Sequence[str] = (), rests: Sequence[str] = ()) -> Any:
    """A tokenizer of the Qwen3 family's form.

    Args:
        systems: rendered system prompts, of which what stands between two marks becomes a token.
        rests: what follows in their conversations, whose words become tokens.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(FRAMES)
    # A renderer may encode a role and the line break behind it one by one.
    parts = [part.strip() for text in systems for part in _MARK.split(text)]
    parts += [part for text in rests for part in _SPACE.split(text)]
    known = dict.fromkeys(part for part in parts if len(part) >= SHORTEST)
    made.add_tokens([AddedToken(word, normalized=False) for word in [*MARKS, *known]])
    kind: Any = PreTrainedTokenizerFast  # its constructor is untyped
    return kind(
        tokenizer_object=made,
        eos_token=END,
        additional_special_tokens=FRAMES,
        clean_up_tokenization_spaces=False,
        chat_template="",
    )


def save(tokenizer: Any, directory: Path) -> Path:
    """Write a tokenizer where a training client can load it; returns the directory."""
    tokenizer.save_pretrained(directory)
    return directory

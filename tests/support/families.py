"""Families of models for the training client: a tokenizer that is made on the spot, and how each family writes.

transformers takes a second to import: that is for the worker that needs it, and not for each that collects tests.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from renderers import GLM45RendererConfig, Qwen3RendererConfig, RendererConfig
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

FRAMES = [
    *["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
    *["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"],
]
MARKS = [
    *["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
    *["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_tokenizer(directory: Path) -> Path:
    """A byte-level tokenizer whose merges are learnt from our own source code, with both families' special tokens."""
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([path.read_text() for path in Path(__file__).parent.glob("*.py")], trainer)
    made.add_special_tokens(FRAMES)
    made.add_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    kind: Any = PreTrainedTokenizerFast  # its constructor is untyped
    fast = kind(tokenizer_object=made, eos_token="<|im_end|>", additional_special_tokens=FRAMES)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)
    return directory


def loaded_tokenizer(directory: Path) -> Any:
    """The tokenizer of a directory."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(directory)


@dataclass(frozen=True)
class Qwen3:
    """JSON calls between marks; `<|im_end|>` ends every message."""

    thinks: bool
    """Whether an answer begins with a thought."""
    retention: Any = None

    @property
    def renderer(self) -> RendererConfig:
        """The configuration of its renderer."""
        return Qwen3RendererConfig(enable_thinking=self.thinks, thinking_retention=self.retention)

    def answer(self, text: str = "", *calls: str, reasoning: str = "") -> str:
        """What a model samples, but for the token with which it stops."""
        thought = f"<think>\n{reasoning}\n</think>\n\n" if self.thinks else ""
        return thought + "\n".join(part for part in (text, *calls) if part)

    def call(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """One call inside an answer."""
        spelled = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return f'<tool_call>\n{{"name": "{name}", "arguments": {spelled}}}\n</tool_call>'

    def stop(self, answer: str) -> str:
        """The token with which it stops."""
        return "<|im_end|>"


@dataclass(frozen=True)
class GLM:
    """Calls as keys and values between marks; the mark of who speaks next ends a message."""

    thinks: bool
    retention: Any = None

    @property
    def renderer(self) -> RendererConfig:
        return GLM45RendererConfig(enable_thinking=self.thinks, thinking_retention=self.retention)

    def answer(self, text: str = "", *calls: str, reasoning: str = "") -> str:
        thought = f"\n<think>{reasoning}</think>" if self.thinks else ""
        return "\n".join((thought, *(part for part in (text, *calls) if part)))

    def call(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        if isinstance(arguments, str):
            return f"<tool_call>{name}\n{arguments}</tool_call>"
        spelled = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
        pairs = (f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in spelled.items())
        return f"<tool_call>{name}\n{''.join(pairs)}</tool_call>"

    def stop(self, answer: str) -> str:
        return "<|observation|>" if answer.endswith("</tool_call>") else "<|user|>"


Family = Qwen3 | GLM
"""How the models of a family write; both say the same of themselves."""

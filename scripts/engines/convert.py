"""Makes a directory that vLLM serves from the weights of a GGUF file. Run by the engines' own Python."""

import json
import sys
from pathlib import Path
from typing import Any

MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
"""Tokens of Qwen3's form that the model was not trained with."""


def convert(weights: Path, template: Path, directory: Path) -> None:
    """Write model and tokenizer; the rows of the new tokens are the mean of the others, the same on each machine."""
    import torch
    import transformers

    library: Any = transformers  # much of it is untyped
    library.utils.logging.disable_progress_bar()
    options = {"gguf_file": weights.name}
    tokenizer = library.AutoTokenizer.from_pretrained(weights.parent, **options)
    read = library.AutoModelForCausalLM.from_pretrained(weights.parent, dtype=torch.float32, **options)
    # What was read from such a file cannot be saved; its weights can.
    fields = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
    model = library.AutoModelForCausalLM.from_config(type(read.config)(**fields))
    model.load_state_dict(read.state_dict())
    known = len(tokenizer)
    tokenizer.add_tokens(MARKS)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for table in {model.get_input_embeddings(), model.get_output_embeddings()}:
            table.weight[known:] = table.weight[:known].mean(dim=0)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.config.eos_token_id = model.generation_config.eos_token_id = end
    model.to(torch.bfloat16).save_pretrained(directory)
    tokenizer.chat_template = template.read_text()
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.save_pretrained(directory)
    # A renderer refuses marks that are the tokenizer's token for what is unknown.
    settings = directory / "tokenizer_config.json"
    left = {key: value for key, value in json.loads(settings.read_text()).items() if key != "unk_token"}
    settings.write_text(json.dumps(left, indent=2))


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:]))

"""One step of TRL's own `GRPOTrainer` on rollouts of a server, on CPU; the arguments are the server's URL and a folder.

The model is made here and untrained, so its engine says what it is told to; the logprobs are the model's, at the
trainer's weights. Runs where trl and torch are; prints what came of the step as a line of JSON.
"""

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from examples.trl.rollouts import Rollouts, rollout_reward
from tests.support.families import Qwen3, save_tokenizer
from tests.support.token_engine import Says, TokenEngine
from tests.training.hostile import bash

server_url, folder = (json.loads(argument) for argument in sys.argv[1:])

FAMILY = Qwen3(thinks=True)
PROMPT = "Write four to answer.txt."
FINALS = ("It is done.", "It is not.", "Done again.", "")
"""What each rollout says at last; the last one is refused by the engine."""
TEMPERATURE = 0.7


class ModelEngine(TokenEngine):
    """Says what it is told; its logprobs are a model's."""

    model: Any

    def logprobs(self, prompt: list[int], completion: list[int], sampling: dict[str, Any]) -> list[float]:
        """Under the weights as they are now, at the temperature that is asked for."""
        neutral = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        assert {name: sampling[name] for name in neutral} == neutral
        with torch.no_grad():
            ids = torch.tensor([[*prompt, *completion]])
            logits = self.model(ids, logits_to_keep=len(completion) + 1).logits[0, :-1] / sampling["temperature"]
            chosen = torch.tensor(completion)[:, None]
            found: list[float] = logits.float().log_softmax(-1).gather(1, chosen)[:, 0].tolist()
            return found


class Plan:
    """What the rollouts do, told apart by the number in their first answer."""

    def __init__(self) -> None:
        self._begun = 0

    def __call__(self, model: str, prompt: str, /) -> Says:
        number = next((number for number in range(len(FINALS)) if f"rollout {number}." in prompt), None)
        if number is not None:
            return Says(FAMILY.answer(FINALS[number], reasoning="Enough."))
        number, self._begun = self._begun, self._begun + 1
        if not FINALS[number]:
            return Says(refuses="no such thing")
        written = "three" if number == 1 else "four"
        command = bash(FAMILY, f"echo {written} > answer.txt; seq {number * 20}")
        return Says(FAMILY.answer(f"This is rollout {number}.", command, reasoning="Hm."))


class Watched(GRPOTrainer):  # type: ignore[misc,unused-ignore]
    """Keeps what the trainer makes of the rollouts."""

    batch: dict[str, Any]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.batch = super()._generate_and_score_completions(inputs)
        return self.batch


def serve(engine: ModelEngine) -> str:
    """The engine's base URL; it is served until this process ends."""
    found: list[str] = []
    up = threading.Event()

    async def run() -> None:
        async with engine.serving() as url:
            found.append(url)
            up.set()
            await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(run(),), daemon=True).start()
    assert up.wait(60)
    return found[0]


def main() -> None:
    torch.manual_seed(0)
    place = save_tokenizer(Path(folder))
    tokenizer = AutoTokenizer.from_pretrained(place)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 1,
    }
    config = Qwen3Config(
        **sizes, vocab_size=len(tokenizer), num_key_value_heads=1, head_dim=16, max_position_embeddings=40_960
    )
    model = Qwen3ForCausalLM(config)
    engine = ModelEngine(place, FAMILY, Plan())
    engine.model = model
    task = {"verify": ["grep -qx four workdir/answer.txt"], "tokenizer": str(place), "renderer": "qwen3"}
    arguments = GRPOConfig(
        output_dir=str(Path(folder) / "out"),
        **{"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none", "max_steps": 1},
        # One row at a time: attention over a whole rollout takes a gigabyte a row.
        **{"num_generations": len(FINALS), "per_device_train_batch_size": 1, "learning_rate": 0.01},
        **{"gradient_accumulation_steps": len(FINALS), "steps_per_generation": len(FINALS)},
        num_iterations=2,  # so that the trainer computes the logprobs before its first step
        temperature=TEMPERATURE,
        max_completion_length=4096,
    )
    trainer = Watched(
        model=model,
        args=arguments,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": [PROMPT] * 4}),
        reward_funcs=rollout_reward,
        rollout_func=Rollouts(server_url, serve(engine), "org/main-model", {PROMPT: task}, at_once=2),
    )
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    outcome = trainer.train()
    print(json.dumps(told(trainer, engine, before, outcome.training_loss)))


def told(trainer: Any, engine: ModelEngine, before: dict[str, Any], loss: float) -> dict[str, Any]:
    """What came of it."""
    batch = trainer.batch
    mask = batch["completion_mask"] * batch["tool_mask"]
    apart = ((batch["old_per_token_logps"] - batch["sampling_per_token_logps"]) * mask).abs()
    ids = [row[kept.bool()].tolist() for row, kept in zip(batch["completion_ids"], mask, strict=True)]
    return {
        "sampled": ids,
        "said": [call.completion for call in engine.calls],
        "apart": apart.max().item(),
        "least": (batch["sampling_per_token_logps"] * mask).min().item(),
        "between": int((batch["completion_mask"] - mask).sum()),
        "advantages": batch["advantages"].tolist(),
        "loss": loss,
        "moved": max((value - before[name]).abs().max().item() for name, value in trainer.model.named_parameters()),
        "finite": all(bool(value.isfinite().all()) for value in trainer.model.parameters()),
        "longest": int(batch["prompt_mask"].sum(1).max() + batch["completion_mask"].sum(1).max()),
    }


if __name__ == "__main__":
    main()

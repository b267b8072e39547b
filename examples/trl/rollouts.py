"""`Rollouts`: the `rollout_func` of TRL's `GRPOTrainer`, which is asked for one completion of every prompt.

That shape is one sequence a rollout, so this is decided here, on top of `flat_sequence`:

- of a rollout with forks the branch of the last answer is trained on; sub-agents and programs are not;
- a rollout without a reward or without token ids (the infrastructure failed it) is a row without a trained token whose
  reward is None, which TRL leaves out of its group's baseline;
- a rollout that is longer than `longest` tokens loses its end and keeps its reward.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from opencode_openenv import OpenCodeEnvClient, RolloutResult, flat_sequence

Prompt = str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Rollouts:
    """Runs rollouts for a trainer.

    Args:
        server_url: of `opencode-openenv`.
        engine_url: the vLLM server that holds the trainer's weights, with its /v1.
        model: name of the model, as the engine and its tokenizer have it.
        tasks: further arguments of `run_rollout`, such as setup and verify, by instruction, as TRL hands over prompts
            only.
        token: that the server asks for; None = none.
        longest: tokens of a prompt with its completion.
        at_once: rollouts at a time, as many as the server's --max-concurrent.
    """

    server_url: str
    engine_url: str
    model: str
    tasks: Mapping[str, Mapping[str, Any]]
    token: str | None = None
    longest: int = 32_768
    at_once: int = 8

    def __call__(self, prompts: Sequence[Prompt], trainer: Any) -> dict[str, list[Any]]:
        """One rollout for each prompt.

        Raises:
            ValueError: the trainer samples from a part of the distribution only, or a prompt has no task.
        """
        require_whole_distribution(trainer)
        calls = [self._call(instruction_of(prompt), trainer) for prompt in prompts]
        with ThreadPoolExecutor(max_workers=self.at_once) as pool:
            results = list(pool.map(self._run, calls))
        return rows_of(results, trainer.processing_class.pad_token_id, self.longest)

    def _call(self, instruction: str, trainer: Any) -> dict[str, Any]:
        if instruction not in self.tasks:
            raise ValueError(f"there is no task for the prompt {instruction[:200]!r}: name it in tasks")
        return {
            **self.tasks[instruction],
            "instruction": instruction,
            "base_url": self.engine_url,
            "model": self.model,
            "token_ids": True,
            "temperature": float(trainer.temperature),
            "max_tokens_cap": int(trainer.max_completion_length or 0),
        }

    def _run(self, call: dict[str, Any]) -> RolloutResult:
        with OpenCodeEnvClient(self.server_url, token=self.token) as env:
            result: RolloutResult = env.run_rollout(**call)
            return result


def rollout_reward(rollout_reward: Sequence[float | None], **others: Any) -> list[float | None]:
    """The trainer's reward function: what the server scored."""
    return list(rollout_reward)


def instruction_of(prompt: Prompt) -> str:
    """The text of a prompt, or of the last message of a conversation."""
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


def require_whole_distribution(trainer: Any) -> None:
    """Refuse settings under which the engine's logprobs are not those that the trainer computes again.

    Raises:
        ValueError: so it is.
    """
    neutral = {"top_p": (None, 1.0), "top_k": (None, 0, -1), "min_p": (None, 0.0), "repetition_penalty": (None, 1.0)}
    wrong = {name: getattr(trainer, name) for name, none in neutral.items() if getattr(trainer, name) not in none}
    if wrong:
        raise ValueError(f"rollouts with token ids are sampled from the whole distribution; leave out {wrong}")


def rows_of(results: Sequence[RolloutResult], pad_token: int, longest: int) -> dict[str, list[Any]]:
    """The rows that `rollout_func` returns; `rollout_reward` and `rollout_error` go to the reward functions."""
    rows: dict[str, list[Any]] = {
        name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "rollout_reward", "rollout_error")
    }
    for result in results:
        found = flat_sequence(result)
        room = 0 if found is None else longest - len(found.prompt_ids)
        if found is None or room < 1 or not any(found.env_mask[:room]):
            row: tuple[Any, ...] = ([pad_token], [pad_token], [0.0], [0], None)
        else:
            parts = (found.completion_ids, found.logprobs, found.env_mask)
            row = (found.prompt_ids, *(part[:room] for part in parts), result.reward)
        for name, value in zip(rows, (*row, result.error or result.training_trace_reason), strict=True):
            rows[name].append(value)
    return rows

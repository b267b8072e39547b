"""GRPO with TRL's `GRPOTrainer`, whose rollouts are the OpenCode agent at work.

Not run here: it needs trl 1.16, vLLM and two GPUs. Three programs, on one machine:

    trl vllm-serve --model Qwen/Qwen3-4B-Instruct-2507 --port 8001
    opencode-openenv --port 8000
    python -m examples.trl.grpo

`trl vllm-serve` serves the trainer's weights, which the trainer sends there before each step, with
`--logprobs-mode processed_logprobs` and, from vLLM 0.30 on, `/inference/v1/generate`, which token ids come from.
"""

from examples.trl.rollouts import Rollouts, rollout_reward
from examples.trl.tasks import ENGINE, MODEL, TASKS


def main() -> None:
    """Train."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    arguments = GRPOConfig(
        output_dir="opencode-grpo",
        use_vllm=True,
        vllm_mode="server",
        vllm_server_base_url=ENGINE,
        num_generations=8,
        per_device_train_batch_size=8,
        temperature=1.0,
        max_completion_length=4096,  # of one model call; a whole rollout is bounded by Rollouts.longest
        bf16=True,
    )
    trainer = GRPOTrainer(
        model=MODEL,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": list(TASKS)}),
        reward_funcs=rollout_reward,
        rollout_func=Rollouts("http://127.0.0.1:8000", f"{ENGINE}/v1", MODEL, TASKS),
    )
    trainer.train()


if __name__ == "__main__":
    main()

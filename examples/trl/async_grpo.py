"""Asynchronous GRPO with TRL's `AsyncGRPOTrainer`, through its interface to OpenEnv sessions (`HarnessRolloutWorker`).

Not run here: it needs trl 1.16, vLLM, openenv 0.10 and GPUs, in an environment without verifiers. Three programs:

    vllm serve Qwen/Qwen3-4B-Instruct-2507 --port 8001 --logprobs-mode processed_logprobs --enable-scale-out \
        --weight-transfer-config '{"backend": "nccl"}'
    opencode-openenv --port 8000                    # in an environment of its own
    python -m examples.trl.async_grpo
"""

import functools

from examples.trl.sessions import OpenCodeSessionFactory
from examples.trl.tasks import ENGINE, MODEL, TASKS


def main() -> None:
    """Train."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
    from trl.experimental.async_grpo.openenv_harness import HarnessRolloutWorker

    arguments = AsyncGRPOConfig(output_dir="opencode-async-grpo", vllm_server_base_url=ENGINE, num_generations=8)
    dataset = Dataset.from_dict({"prompt": [[{"role": "user", "content": instruction}] for instruction in TASKS]})
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    worker = HarnessRolloutWorker(
        harness_session_factory=functools.partial(
            OpenCodeSessionFactory, "http://127.0.0.1:8000", f"{ENGINE}/v1", MODEL, TASKS
        ),
        model_name=MODEL,
        dataset=dataset,
        reward_funcs=[],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        num_generations=arguments.num_generations,
        vllm_server_url=ENGINE,
        max_tokens=arguments.max_completion_length,
        temperature=1.0,
    )
    AsyncGRPOTrainer(model=MODEL, reward_funcs=[], args=arguments, train_dataset=dataset, rollout_worker=worker).train()


if __name__ == "__main__":
    main()

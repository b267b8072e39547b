"""TRL's trainers on rollouts of the OpenCode agent, over a server of `opencode-openenv`.

Written against trl 1.16.0 and openenv 0.10.0. `rollouts.py` is tested with trl's own `GRPOTrainer` on a CPU
(`tests/openenv/test_trl_step.py`), `sessions.py` with openenv's own types; `grpo.py` and `async_grpo.py` need vLLM and
GPUs, and were not run.
"""

"""TRL's trainers on rollouts of the OpenCode agent, over a server of `opencode-openenv`.

Written against the sources of trl 1.16.0 and openenv 0.10.0. `rollouts.py` and `sessions.py` know nothing of trl and
are tested; `grpo.py` and `async_grpo.py` need trl, vLLM and GPUs, and were not run.
"""

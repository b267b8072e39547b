"""What a trainer would get from traces, before an expensive run.

The command `opencode-trainable` prints it and, with `--check`, refuses what a trainer must not use; `samples.py` says
what the samples are. Nothing here needs a network, a trainer or verifiers itself.
"""

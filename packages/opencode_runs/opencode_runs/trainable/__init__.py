"""What a trainer would get from traces, and what it must not use, before an expensive run: `opencode-trainable`.

`samples.py` says what the samples are. Nothing here needs a network, a trainer or verifiers itself.
"""

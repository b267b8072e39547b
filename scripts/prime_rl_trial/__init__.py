"""What prime-rl's own code does with our environments, configurations and traces; on CPU, started by `try_prime_rl.py`.

It runs in an environment that has prime-rl; nothing of ours imports it.
"""

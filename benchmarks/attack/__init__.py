"""What an attacker's program does in its sandbox: `python3 -m benchmarks.attack NAME`, until SIGTERM or 90 s later.

Standard library only: it is copied into the sandbox. Every attack is bounded, so that a machine without any protection
survives it.
"""

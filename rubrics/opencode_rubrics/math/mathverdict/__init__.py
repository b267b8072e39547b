"""Decides whether a mathematical answer is right: pure functions and the programs that run them.

Invariant: imports the standard library, math-verify and nothing else, and only by relative imports among its own
modules, so that the same files run in the host's worker processes and, as part of the scorer bundle, in a sandbox.
"""

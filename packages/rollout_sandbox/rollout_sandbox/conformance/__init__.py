"""Does a runtime keep what a sandbox for agents has to promise? `python -m rollout_sandbox.conformance RUNTIME` tells.

Each promise is a check of any runtime of verifiers, with what to change where it is broken. The tests of our own
runtimes are these checks, and what only they promise.
"""

from rollout_sandbox.conformance import commands, isolation, network  # noqa: F401 - they register theirs
from rollout_sandbox.conformance.promises import PROMISES, Broken, NotAsked, Promise, Subject

__all__ = ["PROMISES", "Broken", "NotAsked", "Promise", "Subject"]

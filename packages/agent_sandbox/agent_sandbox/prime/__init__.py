"""Our Prime runtime: verifiers' own, with its sandboxes owned, the end of commands seen at once, errors told apart."""

from agent_sandbox.prime.left_behind import delete_sandboxes, list_sandboxes
from agent_sandbox.prime.limits import PrimeLimits, lifetime_minutes
from agent_sandbox.prime.runtime import PrimeSandbox, provision_prime
from agent_sandbox.prime.turns import Turns

__all__ = [
    "PrimeLimits",
    "PrimeSandbox",
    "Turns",
    "delete_sandboxes",
    "lifetime_minutes",
    "list_sandboxes",
    "provision_prime",
]

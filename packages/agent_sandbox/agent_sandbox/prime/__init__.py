"""Our Prime runtime: verifiers' own, with its sandboxes owned, the end of commands seen at once, errors told apart."""

from agent_sandbox.prime.runtime import lifetime_minutes as lifetime_minutes
from agent_sandbox.prime.runtime import provision_prime as provision_prime
from agent_sandbox.prime.turns import PrimeLimits as PrimeLimits
from agent_sandbox.prime.turns import Turns as Turns

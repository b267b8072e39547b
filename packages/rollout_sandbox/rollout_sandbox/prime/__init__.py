"""Our Prime runtime: verifiers' own, with its sandboxes owned, the end of commands seen at once, errors told apart."""

from rollout_sandbox.prime.queue import PrimeLimits as PrimeLimits
from rollout_sandbox.prime.queue import PrimeQueue as PrimeQueue
from rollout_sandbox.prime.runtime import lifetime_minutes as lifetime_minutes
from rollout_sandbox.prime.runtime import provision_prime as provision_prime

"""Our Prime runtime: verifiers' own, with its sandboxes owned, the end of commands seen at once, errors told apart."""

from agent_sandbox.prime.left_behind import delete_sandboxes as delete_sandboxes
from agent_sandbox.prime.left_behind import list_sandboxes as list_sandboxes
from agent_sandbox.prime.limits import PrimeLimits as PrimeLimits
from agent_sandbox.prime.limits import lifetime_minutes as lifetime_minutes
from agent_sandbox.prime.runtime import PrimeSandbox as PrimeSandbox
from agent_sandbox.prime.runtime import provision_prime as provision_prime
from agent_sandbox.prime.turns import Turns as Turns

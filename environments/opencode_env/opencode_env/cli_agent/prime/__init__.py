"""Our Prime runtime: verifiers' own, with its sandboxes owned, the end of commands seen at once, errors told apart."""

from opencode_env.cli_agent.prime.left_behind import delete_sandboxes, list_sandboxes
from opencode_env.cli_agent.prime.lifetime import lifetime_minutes
from opencode_env.cli_agent.prime.runtime import OwnPrimeRuntime, provision_prime

__all__ = ["OwnPrimeRuntime", "delete_sandboxes", "lifetime_minutes", "list_sandboxes", "provision_prime"]

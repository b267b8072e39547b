"""What tests ask of a task of either version of verifiers."""

from typing import Any

from rollout_sandbox.compat import AFTER_0_4_0


def reaching(allow: list[str]) -> dict[str, Any]:
    """The fields of a task that may reach these hosts, as rows name them."""
    return {"network": {"allow": allow}} if AFTER_0_4_0 else {"network_allow": allow}

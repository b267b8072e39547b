"""What a wire format says of an error: by its status, and in 0.4.0 always that the request is invalid."""

from typing import Any

from verifiers.v1.dialects import Dialect

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0


def error_body(dialect: Dialect[Any], message: str, status: int) -> dict[str, Any]:
    """The body of an answer with this status."""
    if AFTER_0_4_0:  # noqa: SIM108 - one branch for each version's type checker
        said = dialect.error_body(message, status_code=status)
    else:
        said = dialect.error_body(message)
    return dict(said)

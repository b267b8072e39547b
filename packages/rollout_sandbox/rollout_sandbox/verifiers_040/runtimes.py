"""Runtimes that verifiers has in 0.4.0 and no longer. When 0.4.0 is dropped, the message about them stays a while."""

from collections.abc import Mapping
from typing import Final

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0

_OTHERS = 'docker, prime, or a backend of your own: "custom" with its import_path'

GONE_RUNTIMES: Final[Mapping[str, str]] = (
    {
        "podman": '"custom" with import_path "rollout_sandbox.PodmanBackend"',
        "apptainer": _OTHERS,
        "modal": _OTHERS,
        "e2b": _OTHERS,
    }
    if AFTER_0_4_0
    else {}
)
"""What to name instead, by the type that verifiers 0.4.0 had."""

"""What `--env.agent.runtime.type custom --env.agent.runtime.import-path agent_sandbox.OwnedPrimeBackend` names.

verifiers' own Prime sandboxes, which are deleted whatever happens, for any environment of verifiers after 0.4.0.
"""

from typing import Literal

from verifiers.v1.runtimes import PrimeConfig

from agent_sandbox.prime.runtime import PrimeSandboxBackend
from agent_sandbox.prime.turns import PrimeLimits, StartRecord, taken_turn
from agent_sandbox.verifiers_040 import CustomRuntimeConfig


class OwnedPrimeConfig(PrimeConfig, CustomRuntimeConfig):
    """verifiers' options of a Prime sandbox, and ours."""

    type: Literal["custom"] = "custom"  # type: ignore[assignment]  # "prime" there
    import_path: str = "agent_sandbox.OwnedPrimeBackend"
    """What makes it."""
    lifetime_minutes: int = 24 * 60
    """Minutes after which the platform ends it, should this process be killed; -1 is never."""
    limits: PrimeLimits = PrimeLimits()
    """What one process may ask of Prime at once; `max_sandboxes` holds in environments of ours only."""


class OwnedPrimeBackend(PrimeSandboxBackend):
    """A Prime sandbox, for verifiers after 0.4.0; 0.4.0 has it in environments of ours only."""

    config_class = OwnedPrimeConfig

    def __init__(self, config: OwnedPrimeConfig, name: str | None = None) -> None:
        said = {field: getattr(config, field) for field in PrimeConfig.model_fields if field != "type"}
        self._asked = PrimeConfig(**said)
        super().__init__(self._asked, config.lifetime_minutes, StartRecord(config.limits), name)
        self._limits = config.limits

    async def start(self) -> None:
        """Wait for its turn, have a sandbox and wait until it is up."""
        self.record = await taken_turn(self._asked, None)
        self.record.limits = self._limits
        await super().start()

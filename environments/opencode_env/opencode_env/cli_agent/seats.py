"""Default seats of environments."""

from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import SubprocessConfig


def local_seat(harness: HarnessConfig) -> AgentConfig:
    """A seat with this harness in the confined local sandbox, as the default of an environment's configuration. Copied,
    not built with the harness: validating one resolves its id, which would import its package again."""
    return AgentConfig(runtime=SubprocessConfig()).model_copy(update={"harness": harness})

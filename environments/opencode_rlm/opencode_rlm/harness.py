"""`OpenCodeRLMHarness`: the OpenCode harness with the RLM plugin, the `llm` command and sub-agents."""

from typing import ClassVar

from opencode_env.opencode import OpenCodeHarness
from opencode_env.opencode.session import OpenCodeSession
from verifiers.v1.harness import Harness

from opencode_rlm.harness_config import OpenCodeRLMHarnessConfig
from opencode_rlm.session import OpenCodeRLMSession


class OpenCodeRLMHarness(OpenCodeHarness, Harness[OpenCodeRLMHarnessConfig]):
    """Runs OpenCode so that it can call language models from inside its work; only in `OpenCodeRLMEnv`."""

    SESSION: ClassVar[type[OpenCodeSession]] = OpenCodeRLMSession

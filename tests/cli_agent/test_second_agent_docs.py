"""The environment class that the documentation shows is one that works."""

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from opencode_env.cli_agent import env, seats
from opencode_rubrics import cleanup
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.harnesses.bash import BashHarnessConfig

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "bring-your-agent.md"


def shown() -> dict[str, str]:
    """The code that defines `MyAgentEnv`, by where it stands."""
    docstring = inspect.getdoc(env.CliAgentEnv) or ""
    code = textwrap.dedent("".join(re.findall(r"^(?: {4}.*)?\n", docstring.partition("::\n")[2], re.MULTILINE)))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "MyAgentEnv" in block]
    return {"docstring": code, "page": block}


@pytest.mark.parametrize("place", ["docstring", "page"])
def test_the_shown_environment_has_the_shown_harness_in_the_confined_sandbox(place: str) -> None:
    names: dict[str, Any] = {**vars(env), **vars(seats), "MyHarnessConfig": BashHarnessConfig, "cleanup": cleanup}
    exec(shown()[place], names)
    config = names["MyAgentEnvConfig"].model_fields["agent"].default
    assert isinstance(config, AgentConfig)
    assert config.harness is not None
    assert (config.harness.id, config.runtime.type) == ("my-agent", "subprocess")
    assert names["MyAgentEnv"].run is env.CliAgentEnv.run

"""The environment class that the documentation shows is one that works."""

import re
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env import agents

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "bring-your-agent.md"


def test_the_shown_environment_has_the_shown_harness_in_the_confined_sandbox() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "MyAgentEnv" in block]
    names: dict[str, Any] = {name: getattr(agents, name) for name in agents.__all__} | {"vf": vf}
    exec(block, names)
    config = names["MyAgentEnvConfig"].model_fields["agent"].default
    assert isinstance(config, vf.AgentConfig)
    assert config.harness is not None
    assert (config.harness.id, config.runtime.type) == ("my-agent", "subprocess")
    assert names["MyAgentEnv"].run is agents.CliAgentEnv.run

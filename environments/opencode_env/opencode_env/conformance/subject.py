"""The agent under test: which plugin, where it runs, and how its model speaks to it."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opencode_env.conformance.dialect import Dialect

PLUGINS = Path(__file__).parent / "plugins"
"""The suite's taskset, found by its id."""


@dataclass(frozen=True)
class Subject:
    """What the options of the suite say."""

    harness: str | None
    """Id of the harness; None: the one that the environment pins."""
    env: str
    """Id of a `CliAgentEnv`."""
    runtime: str
    """Runtime of the seat; `confined` is the local sandbox."""
    arguments: Sequence[str]
    """Further arguments of `vf-eval`."""
    dialect: Dialect
    seconds: float
    """The agent's time limit in rows where it should not need one."""

    @property
    def confined(self) -> bool:
        """Whether it runs in the confined local sandbox, whose processes and files are seen from here."""
        return self.runtime == "confined"

    @property
    def vf_arguments(self) -> list[str]:
        """What `vf-eval` needs to play the suite's taskset with this agent."""
        runtime = "subprocess" if self.confined else self.runtime
        harness = [] if self.harness is None else ["--env.agent.harness.id", self.harness]
        return ["--env.id", self.env, "--env.agent.runtime.type", runtime, *harness, *self.arguments]

    @property
    def name(self) -> str:
        """The subject in a few words."""
        return f"harness {self.harness or 'of the environment'}, env {self.env}, runtime {self.runtime}"


def python_path() -> list[Path]:
    """The suite's plugins, and where this process finds modules that are not installed: the author's own."""
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    entries = [Path(entry or os.curdir).resolve() for entry in sys.path]
    own = [entry for entry in entries if entry.is_dir() and not any(entry.is_relative_to(root) for root in installed)]
    return [PLUGINS, *own]

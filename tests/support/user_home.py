"""The home of `opencode_env.conformance`, from which tests run the real `vf-eval`, with the plugins of the tests."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from opencode_env.conformance import user_home
from opencode_env.conformance.user_home import VF_EVAL, FinishedEvaluation, RunningEvaluation, closed_port, is_closed
from opencode_env.scripted_model import Policy, ScriptedModel

__all__ = [
    "PLUGINS",
    "FinishedEvaluation",
    "RunningEvaluation",
    "UserHome",
    "closed_port",
    "is_closed",
    "podman_containers",
]

PLUGINS = Path(__file__).parent / "plugins"
"""Modules with tasksets, environments and harnesses of the tests, importable by their ids."""


class UserHome(user_home.UserHome):
    """A home whose runs find the plugins of the tests."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, [PLUGINS])

    async def play(
        self, name: str, policy: Policy, *arguments: str, env: Mapping[str, str] | None = None, program: Path = VF_EVAL
    ) -> FinishedEvaluation:
        """A run whose model says what the policy does; the others as for `run`."""
        async with ScriptedModel(policy) as model:
            return await self.run(name, model.base_url, *arguments, env=env, program=program)


def podman_containers() -> list[str]:
    """Names of all containers of this user, running or not."""
    podman = shutil.which("podman")
    assert podman is not None
    done = subprocess.run([podman, "ps", "-a", "--format", "{{.Names}}"], check=True, capture_output=True, text=True)
    return done.stdout.split()

"""The home of `opencode_env.conformance`, from which tests run the real `vf-eval`, with the plugins of the tests."""

import shutil
import subprocess
from pathlib import Path

from opencode_env.conformance import user_home
from opencode_env.conformance.user_home import Finished, Running, closed_port, is_closed

__all__ = ["PLUGINS", "Finished", "Running", "UserHome", "closed_port", "is_closed", "podman_containers"]

PLUGINS = Path(__file__).parent / "plugins"
"""Modules with tasksets, environments and harnesses of the tests, importable by their ids."""


class UserHome(user_home.UserHome):
    """A home whose runs find the plugins of the tests."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, [PLUGINS])


def podman_containers() -> list[str]:
    """Names of all containers of this user, running or not."""
    podman = shutil.which("podman")
    assert podman is not None
    done = subprocess.run([podman, "ps", "-a", "--format", "{{.Names}}"], check=True, capture_output=True, text=True)
    return done.stdout.split()

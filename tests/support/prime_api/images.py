"""The image of the server's sandboxes that holds OpenCode."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from rollout_sandbox.confined import Bind

OPENCODE_IMAGE = "ghcr.io/tests/opencode:prepared"


def with_opencode(cache: Path | None = None) -> Mapping[str, Sequence[Bind]]:
    """The images of a server, with the one that holds OpenCode as its makers would put it in; `cache` is another cache
    of its builds than this process's."""
    build = ensure_build(DEFAULT_VERSION, host_platform(), cache)
    return {OPENCODE_IMAGE: [Bind(build.directory, f"/opencode/{build.directory.name}")]}

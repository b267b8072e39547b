"""The kinds of place where the remote rubric scores: the confined sandbox, a container with an agent user, a container
whose agent is root, and a Prime sandbox, of which the same holds: nothing inside can be trusted."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import verifiers.v1 as vf
from agent_sandbox.confined import Bind, LocalSandboxConfig, provision_confined
from opencode_rubrics import RemoteHybridMathRubric

from tests.support.places import podman_box, prime_box
from tests.support.podman import derived_image

_STDLIB = Path("/usr/lib/python3.11")
_LIBRARIES = ("libffi.so.8", "libmpdec.so.3", "libexpat.so.1")
_RECIPE = """ADD stdlib.tar /
RUN echo 'agent:x:1000:1000::/home/agent:/bin/sh' >> /etc/passwd && mkdir -p /home/agent /app && \
chown 1000:1000 /home/agent /app"""


@dataclass(frozen=True)
class Place:
    """A live sandbox, and the agent's view of it."""

    name: str
    box: vf.Runtime
    agent: vf.Runtime
    rubric: RemoteHybridMathRubric

    @property
    def user(self) -> str | None:
        """The task's `agent_user`."""
        return self.agent.user

    async def cheat(self, name: str) -> None:
        """Run a cheat as the agent would."""
        text = (Path(__file__).parent / "cheats" / f"{name}.sh").read_text()
        result = await self.agent.run(["sh", "-c", text], {})
        assert result.exit_code == 0, result.stderr

    async def do(self, command: str) -> str:
        """Run a shell command as the agent; its output."""
        result = await self.agent.run(["sh", "-c", command], {})
        assert result.exit_code == 0, result.stderr
        return result.stdout


@asynccontextmanager
async def confined_place(
    rubric: RemoteHybridMathRubric, options: LocalSandboxConfig | None = None
) -> AsyncIterator[Place]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    binds = [Bind(shared.source, shared.target) for shared in await rubric.shared_directories()]
    async with provision_confined(options or LocalSandboxConfig(), binds, name=None, env={}) as box:
        yield Place("confined", box, box, rubric)


@asynccontextmanager
async def container_place(rubric: RemoteHybridMathRubric, image: str, user: str | None) -> AsyncIterator[Place]:
    async with podman_box(image) as box:
        yield Place("agent-user" if user else "root", box, box.with_user(user, "/home/agent") if user else box, rubric)


def image_with_agent_user(base: str) -> str:
    """The base image with Python's whole standard library and a user `agent`."""
    if not (_STDLIB / "lib-dynload").is_dir():
        pytest.skip("the test image takes Python 3.11's standard library from this machine, which has none")
    archive = Path(tempfile.gettempdir()) / f"opencode-env-stdlib-{os.getuid()}.tar"
    if not archive.exists():
        found = [str(path) for name in _LIBRARIES for path in Path("/usr/lib").glob(f"*/{name}*")]
        left_out = ["--exclude=*/test", "--exclude=*/config-*", "--exclude=__pycache__", "--exclude=*/idlelib"]
        staged = archive.with_suffix(".new")
        subprocess.run(["tar", "-cf", str(staged), *left_out, str(_STDLIB), *found], check=True, capture_output=True)
        staged.rename(archive)
    return derived_image("math-agent", _RECIPE, {"stdlib.tar": archive})


@asynccontextmanager
async def place_named(
    name: str, request: pytest.FixtureRequest, rubric: RemoteHybridMathRubric
) -> AsyncIterator[Place]:
    """One of "confined", "agent-user", "root" and "prime"."""
    if name == "confined":
        async with confined_place(rubric) as place:
            yield place
    elif name == "prime":
        request.getfixturevalue("prime_api")
        async with prime_box("bare") as box:
            yield Place("root", box, box, rubric)
    else:
        image = request.getfixturevalue("podman_image")
        user = "agent" if name == "agent-user" else None
        async with container_place(rubric, image_with_agent_user(image) if user else image, user) as place:
            yield place

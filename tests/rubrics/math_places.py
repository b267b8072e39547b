"""The kinds of place where the remote rubric scores: the confined sandbox, a container with an agent user, a container
whose agent is root, and a Prime sandbox, of which the same holds: nothing inside can be trusted."""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import verifiers.v1 as vf
from opencode_rubrics import RemoteHybridMathRubric
from opencode_rubrics.math.scorer_bundle import ScorerBundle, ensure_bundle
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined

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
        await self.do((Path(__file__).parent / "cheats" / f"{name}.sh").read_text())

    async def do(self, command: str) -> str:
        """Run a shell command as the agent; its output."""
        result = await self.agent.run(["sh", "-c", command], {})
        assert result.exit_code == 0, result.stderr
        return result.stdout


@asynccontextmanager
async def confined_place(
    rubric: RemoteHybridMathRubric, options: LocalSandboxConfig | None = None
) -> AsyncIterator[Place]:
    binds = list(await rubric.shared_directories())
    async with provision_confined(options or LocalSandboxConfig(), binds) as box:
        yield Place("confined", box, box, rubric)


@asynccontextmanager
async def container_place(rubric: RemoteHybridMathRubric, image: str, user: str | None) -> AsyncIterator[Place]:
    async with podman_box(image) as box:
        yield Place("agent-user" if user else "root", box, box.with_user(user, "/home/agent") if user else box, rubric)


def image_with_agent_user(base: str, bundle: ScorerBundle | None = None) -> str:
    """The base image with Python's whole standard library, a user `agent`, and the scorer bundle if there is one."""
    if not (_STDLIB / "lib-dynload").is_dir():
        pytest.skip("the test image takes Python 3.11's standard library from this machine, which has none")
    archive = Path(tempfile.gettempdir()) / f"opencode-env-stdlib-{os.getuid()}.tar"
    if not archive.exists():
        found = [str(path) for name in _LIBRARIES for path in Path("/usr/lib").glob(f"*/{name}*")]
        left_out = ["--exclude=*/test", "--exclude=*/config-*", "--exclude=__pycache__", "--exclude=*/idlelib"]
        staged = archive.with_suffix(".new")
        subprocess.run(["tar", "-cf", str(staged), *left_out, str(_STDLIB), *found], check=True, capture_output=True)
        staged.rename(archive)
    if bundle is None:
        return derived_image("math-agent", _RECIPE, {"stdlib.tar": archive})
    recipe = f"{_RECIPE}\nADD scorer.zip {bundle.archive_target}"
    return derived_image("math-agent", recipe, {"stdlib.tar": archive, "scorer.zip": bundle.archive})


@asynccontextmanager
async def place_named(
    name: str, request: pytest.FixtureRequest, rubric: RemoteHybridMathRubric
) -> AsyncIterator[Place]:
    """One of "confined", "agent-user" (whose image holds the scorer bundle), "bare-agent-user", "root" and "prime"."""
    if name == "confined":
        async with confined_place(rubric) as place:
            yield place
    elif name == "prime":
        request.getfixturevalue("prime_api")
        async with prime_box("bare") as box:
            yield Place("root", box, box, rubric)
    else:
        image, user = request.getfixturevalue("podman_image"), None if name == "root" else "agent"
        if user:
            image = image_with_agent_user(image, await ensure_bundle() if name == "agent-user" else None)
        async with container_place(rubric, image, user) as place:
            yield place


PlaceOf = Callable[[str], AbstractAsyncContextManager[Place]]
"""What makes a place of a kind, by its name."""

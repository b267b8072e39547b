"""The three ways to recurse in a container that has neither Python nor Node nor curl, and in a Prime sandbox."""

from pathlib import Path
from typing import Any

import pytest
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, ensure_build, host_platform
from opencode_env.scripted_model import ChatRequest, Reply
from rollout_sandbox.podman import PodmanConfig
from verifiers.v1.runtimes import PrimeConfig

from tests.rlm.episodes import play, task
from tests.support.places import own_url
from tests.support.podman import derived_image
from tests.support.prime_api import OPENCODE_IMAGE, PrimeApi
from tests.support.replies import bash, call
from tests.support.seats import SUB_MODEL

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

Options = tuple[str, dict[str, Any]]
"""A command that comes first, and the environment's options."""
PROGRAMS = "COPY opencode rg /usr/local/bin/"
HIDE_PYTHON = "rm -f /usr/bin/python3*; for name in python3 node curl; do command -v $name; done"
"""verifiers' own proxy of a container needs Python in the image, so it goes when the agent starts."""


@pytest.fixture(scope="module")
def image(podman_image: str) -> str:
    """The base image with OpenCode and ripgrep on the PATH."""
    build = ensure_build(DEFAULT_VERSION, host_platform())
    return derived_image("programs", PROGRAMS, {name: build.directory / name for name in ("opencode", "rg")})


@pytest.fixture
def container(image: str) -> Options:
    """The seat in a container, where Python goes before the agent has started."""
    return HIDE_PYTHON, {"agent": {"runtime": PodmanConfig(image=image).model_dump()}}


@pytest.fixture
def prime(prime_api: PrimeApi) -> Options:
    """The seat in a Prime sandbox; its system, which is this machine's, keeps its Python."""
    runtime = PrimeConfig(image=OPENCODE_IMAGE).model_dump()
    interception = {"type": "server", "tunnel": own_url().model_dump()}
    return "true", {"agent": {"runtime": runtime}, "interception": interception}


@pytest.mark.parametrize("kind", [pytest.param("container", marks=pytest.mark.podman), "prime"])
async def test_each_of_the_three_ways_works_in_a_remote_or_bare_sandbox(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    hide, options = request.getfixturevalue(kind)

    def sub(request: ChatRequest) -> Reply:
        if request.tools and request.turn == 0:
            return bash("echo nested | llm")
        return Reply(text=f"sub: {request.user_texts[-1].strip()[-12:]}")

    steps = [
        bash(hide),
        call("llm_subcall", prompts=["one", "two"]),
        bash('printf \'"a"\\n"b"\\n\' | llm --batch; echo code $?'),
        task("be a child"),
        Reply(text="done"),
    ]
    played = await play(tmp_path, steps, sub, options=options)
    assert played.episode.ok, played.problems
    hidden, batch, command, child = played.tool_results()
    assert "/" not in hidden
    assert batch == "[1] sub: one\n\n[2] sub: two"
    assert command.split() == ['{"answer":"sub:', 'a"}', '{"answer":"sub:', 'b"}', "code", "0"]
    assert "sub: be a child" in child
    assert {call.model for call in played.sub.calls} == {SUB_MODEL}
    assert played.main.metrics["sub_llm_turns"] == 7
    assert played.sub.num_branches == 6

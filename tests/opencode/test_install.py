"""The install strategies in real containers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from opencode_env.agents.opencode import OpenCodeHarness, OpenCodeHarnessConfig
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, CachedBuild
from opencode_env.agents.opencode.install import install, probe_sandbox
from opencode_env.scripted_model import Reply
from rollout_sandbox.conformance.subject import LIST_PROCESSES
from verifiers.v1.errors import HarnessError
from verifiers.v1.runtimes import Runtime, SubprocessConfig, provision_runtime

from tests.support.places import Container
from tests.support.replies import bash
from tests.support.rollouts import lone_box, play

pytestmark = [pytest.mark.podman, pytest.mark.asyncio(loop_scope="module")]


def config(**fields: Any) -> OpenCodeHarnessConfig:
    return OpenCodeHarnessConfig(id="opencode-env", **fields)


@pytest.fixture(autouse=True)
def nothing_is_remembered_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts of other tests ran in containers of these images to which the host showed its own build."""
    monkeypatch.setattr("opencode_env.agents.opencode.install._IMAGE_PROGRAMS", {})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(podman_image: str) -> AsyncIterator[Runtime]:
    """A container with python3 and nothing of ours."""
    async with lone_box(Container(podman_image)) as box:
        yield box


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def equipped(opencode_image: str) -> AsyncIterator[Runtime]:
    """A container of an image that holds OpenCode and ripgrep."""
    async with lone_box(Container(opencode_image)) as box:
        yield box


async def sh(box: Runtime, command: str) -> str:
    result = await box.run(["sh", "-c", command], {})
    return result.stdout.strip() or result.stderr.strip()


async def test_an_upload_puts_both_programs_in_place_once(bare: Runtime, build: CachedBuild) -> None:
    directory = await install(config(), bare)
    assert directory == f"/opencode/{build.directory.name}"
    assert await sh(bare, f"{directory}/opencode --version") == DEFAULT_VERSION
    assert "ripgrep" in await sh(bare, f"{directory}/rg --version")
    before = await sh(bare, f"stat -c %Z.%i {directory}/*")
    assert await install(config(), bare) == directory
    assert await sh(bare, f"stat -c %Z.%i {directory}/*") == before
    assert await sh(bare, "ls /opencode/*") == "complete.json\nopencode\nrg"


async def test_an_upload_that_was_cut_is_not_taken_for_complete(bare: Runtime, build: CachedBuild) -> None:
    half = f"/half/{build.directory.name}"
    await sh(bare, f"mkdir -p {half}; echo half > {half}/opencode; chmod +x {half}/opencode")
    assert (await probe_sandbox(config(asset_dir="/half"), bare)).ready == ()


async def test_a_version_without_a_checksum_is_never_downloaded(bare: Runtime) -> None:
    with pytest.raises(HarnessError, match=r"no checksum is pinned.*install upload"):
        await install(config(install="download", asset_dir="/other", version="1.18.32"), bare)


async def test_an_image_that_holds_the_version_is_used_as_it_is(equipped: Runtime) -> None:
    for strategy in ("image", "auto"):
        assert await install(config(install=strategy), equipped) == "/usr/local/bin"
    assert await sh(equipped, "ls -d /opencode") == "ls: cannot access '/opencode': No such file or directory"


async def test_an_image_with_another_version_is_refused_with_the_way_out(equipped: Runtime) -> None:
    with pytest.raises(HarnessError, match=rf"is OpenCode {DEFAULT_VERSION}, wanted is 1\.18\.32: rebuild the image"):
        await install(config(install="image", version="1.18.32"), equipped)


async def test_an_image_without_opencode_is_refused_with_the_way_out(bare: Runtime) -> None:
    with pytest.raises(HarnessError, match=r"no opencode in /nothing or on PATH.*install auto"):
        await install(config(install="image", asset_dir="/nothing"), bare)


async def test_ripgrep_is_added_to_an_image_that_holds_only_opencode(equipped: Runtime) -> None:
    await sh(equipped, "mv /usr/local/bin/rg /usr/local/rg.kept")
    directory = await install(config(), equipped, trust_image=False)
    assert "ripgrep" in await sh(equipped, f"{directory}/rg --version")


async def test_the_probe_knows_musl_by_its_loader(bare: Runtime) -> None:
    assert (await probe_sandbox(config(), bare)).platform.libc == "glibc"
    await sh(bare, "touch /lib/ld-musl-x86_64.so.1")
    try:
        assert (await probe_sandbox(config(), bare)).platform.package.endswith("-musl")
    finally:
        await sh(bare, "rm /lib/ld-musl-x86_64.so.1")


@pytest.mark.opencode
async def test_a_bare_container_is_given_the_binary_even_when_another_of_its_image_had_it_already(
    bare: Runtime, podman_image: str
) -> None:
    for _ in range(2):
        await install(config(), bare)
    played = await play(Container(podman_image), [bash("command -v opencode rg"), Reply(text="Done.")])
    assert played.trace.ok, played.trace.errors
    (found,) = played.tool_results()
    assert all(path.startswith("/opencode/") for path in found.split())


@pytest.mark.opencode
async def test_an_agent_user_works_as_itself_and_what_it_left_is_ended(user_image: str) -> None:
    command = "id -un; touch /app/mine; (setsid sleep 1111 >/dev/null 2>&1 &) ; head -c1 /etc/shadow"
    played = await play(
        Container(user_image),
        [bash(command), Reply(text="Done.")],
        agent_user="agent",
        after=f"stat -c %U /app/mine; id -un; {LIST_PROCESSES}",
    )
    assert played.trace.ok, played.trace.errors
    (said,) = played.tool_results()
    assert said.startswith("agent\n")
    assert "Permission denied" in said
    assert played.seen.startswith("agent\nroot\n")
    assert "sleep 1111" not in played.seen


async def test_this_machine_itself_is_refused_as_a_sandbox() -> None:
    async with provision_runtime(SubprocessConfig()) as runtime:
        with pytest.raises(HarnessError, match="without confinement"):
            await OpenCodeHarness(config()).setup(runtime)

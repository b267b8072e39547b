"""Answer files of a podman container are read from outside, with no program of the container's and as its user."""

import pytest
from rollout_sandbox.podman import PodmanConfig, PodmanRuntime, provision_podman
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded_text
from verifiers.v1.errors import SandboxError

from tests.support.podman import derived_image

from .conftest import sh

pytestmark = pytest.mark.podman


@pytest.mark.parametrize(
    ("make", "path", "state"),
    [
        ("mkdir -p /app/a && echo 42 >/app/a/b", "/app/a/b", FileState.TEXT),
        ("true", "/app/missing", FileState.ABSENT),
        ("echo 42 >/app/file", "/app/file/below", FileState.ABSENT),
        ("echo 42 >/app/there; ln -s there /app/link", "/app/link", FileState.SYMLINK),
        ("ln -s loop /app/loop", "/app/loop/below", FileState.ABSENT),
        ("mkdir /app/dir", "/app/dir", FileState.NOT_A_FILE),
        ("mkfifo /app/fifo", "/app/fifo", FileState.NOT_A_FILE),
        ("mknod /app/zero c 1 5 || ln /dev/zero /app/zero || mkdir /app/zero", "/app/zero", FileState.NOT_A_FILE),
        ("ln -s /proc/self /app/proc", "/app/proc/environ", FileState.ABSENT),
        ("ln -s /proc/1 /app/one", "/app/one/environ", FileState.NOT_A_FILE),
        ("truncate -s 1T /app/sparse", "/app/sparse", FileState.OVERSIZED),
        ("printf '42\\0' >/app/binary", "/app/binary", FileState.BINARY),
    ],
)
async def test_what_is_there_is_told(shared_runtime: PodmanRuntime, make: str, path: str, state: FileState) -> None:
    done = await sh(shared_runtime, make)
    assert done.exit_code == 0, done.stderr
    found = await read_bounded_text(shared_runtime, path, 1000)
    assert found == ("42\n" if state is FileState.TEXT else state)


async def test_a_link_in_the_container_leads_to_nothing_outside_it(shared_runtime: PodmanRuntime) -> None:
    await sh(shared_runtime, "ln -s / /app/root; ln -s /proc/1/root /app/other; ln -s /proc/1/cwd/../../.. /app/up")
    await sh(shared_runtime, "echo inside >/etc/hostname-of-mine")
    for way in ("root", "other", "up"):
        found = await read_bounded_text(shared_runtime, f"/app/{way}/etc/hostname-of-mine", 1000)
        assert found == "inside\n"


async def test_an_agent_that_replaced_every_program_tells_nothing_of_its_own(runtime: PodmanRuntime) -> None:
    await sh(runtime, "printf '#!/bin/sh\\necho 42\\n' >/tmp/forged; chmod +x /tmp/forged")
    replace = "cp /tmp/forged /usr/bin/.new; mv /usr/bin/.new /usr/bin/$name"
    await sh(runtime, f"for name in head wc cat dash sh; do {replace}; done")
    assert (await read_bounded_text(runtime, "/app/answer.txt", 1000)) is FileState.ABSENT


async def test_the_images_user_is_who_reads(podman_image: str) -> None:
    secret = "mkdir /secret && echo 42 >/secret/answer && chmod 700 /secret && install -m 600 /dev/null /shown"
    recipe = f"RUN {secret}\nUSER 1234"
    async with provision_podman(PodmanConfig(image=derived_image("read-as", recipe))) as box:
        assert (await read_bounded_text(box, "/shown", 1000)) is FileState.UNREADABLE
        assert (await read_bounded_text(box, "/secret/answer", 1000)) is FileState.UNREADABLE
        assert (await sh(box, "echo 42 >/app/answer")).exit_code == 0
        assert (await read_bounded_text(box, "/app/answer", 1000)) == "42\n"


async def test_a_container_that_is_gone_is_an_error(runtime: PodmanRuntime) -> None:
    runtime.backend.container.remove()
    with pytest.raises(SandboxError):
        await read_bounded_text(runtime, "/app/answer.txt", 1000)

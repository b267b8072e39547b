"""Containers that tests use one after another are to each what its image has made."""

import pytest
from rollout_sandbox.conformance.subject import runs

from tests.support.places import podman_box

from .conftest import sh

pytestmark = pytest.mark.podman

FILES = (  # but one that holds the container's address, which may have a digit more
    "{ find / -xdev -path /etc/hosts -o -type d -printf '%p %m %U %G\\n' -o -printf '%p %m %U %G %s %l\\n'; "
    "md5sum /etc/group; ls -A /dev/shm; } | sort"
)
DAMAGE = (
    "rm -rf /var/lib; mkdir -p /var/lib/x; rm /usr/bin/head; ln -s / /usr/bin/head; chmod 700 /tmp; chown 7:7 /etc "
    "/etc/passwd; sed -i s/root/toor/ /etc/group; ln -s /etc /srv/link; mkfifo /app/pipe; echo x >/dev/shm/x; "
    "setsid sleep 2107 >/dev/null 2>&1 & "
)


async def test_a_container_that_another_test_has_damaged_is_as_it_was(podman_image: str) -> None:
    seen = []
    for end in ("", "echo x >>/etc/hosts", ""):
        async with podman_box(podman_image) as box:
            assert not await runs(box, "sleep 2107")
            seen.append((box.backend.container.id, (await sh(box, FILES)).stdout.splitlines()))
            await sh(box, DAMAGE + end)
            assert await runs(box, "sleep 2107")
            assert (await sh(box, FILES)).stdout.splitlines() != seen[0][1]
    assert seen[0][0] == seen[1][0]
    assert set(seen[0][1]) ^ set(seen[1][1]) == set()
    assert seen[2][0] != seen[1][0], "what is mounted is not put right"
    assert set(seen[1][1]) ^ set(seen[2][1]) == set()

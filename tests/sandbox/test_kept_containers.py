"""Files of a podman container, kept on the host and put into another one of the same image."""

from pathlib import Path

import pytest
from rollout_sandbox.errors import NotKept
from rollout_sandbox.podman import PodmanConfig, provision_podman
from rollout_sandbox.toolbox.kept_files import entries_of

pytestmark = [pytest.mark.podman, pytest.mark.usefixtures("sandboxes")]

MAKE = r"""
cd /app && mkdir -p deep/er empty && printf 'a\nb' >deep/er/one && : >none && chmod 4755 none && mkfifo pipe
ln -s /etc/passwd out && ln deep/er/one same && touch -d @1000000000.5 deep/er/one deep/er && chmod 555 empty
echo s >/dev/shm/s && echo r >/root/.rc && rm /etc/issue && rm -r /etc/apt && mkdir /etc/apt && echo y >/etc/apt/new
mv /etc/skel /opt/skel && chmod 700 /usr/bin/true && chown 7:8 none && rm -r /etc/dpkg && ln -s nowhere /etc/dpkg
echo evil >/app/json.py && printf x >"$(printf 'odd\nname')"
"""
LIST = r"""
for place in /app /root /opt /dev/shm /etc/apt /etc/dpkg /etc/issue /etc/skel /usr/bin/true; do
    find "$place" -printf '%p %y %m %T@ %U:%G %l %n\n' 2>&1 | sort
    find "$place" -type f -exec md5sum {} + 2>/dev/null | sort
done
"""
MOST = 1 << 30


async def test_what_differs_from_the_image_is_put_into_another_container(podman_image: str, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "123"]
    for folder in folders:
        folder.mkdir()
    config = PodmanConfig(image=podman_image, workdir="/app")
    async with provision_podman(config) as made:
        assert (done := await made.run(["sh", "-ec", MAKE], {})).exit_code == 0, done.stderr
        before = (await made.run(["sh", "-c", LIST], {})).stdout
        kept, held = await made.keep_files(folders[0], None, MOST)
        assert kept.bytes == kept.new_bytes > 0
        assert held > 0
        await made.run(["sh", "-c", "sleep 0.1; echo more >>/app/deep/er/one"], {})
        again, _ = await made.keep_files(folders[1], folders[0], MOST)
        assert 0 < again.new_bytes < again.bytes
        with pytest.raises(NotKept, match=r"more than 1$"):
            await made.keep_files(folders[2], None, 1)
        await made.run_background(["sh", "-c", "sleep 600 & sleep 601 & wait"], {}, "/tmp/log")
        with pytest.raises(NotKept, match="beside the agent's program: sleep"):
            await made.keep_files(folders[2], None, MOST)
        assert (await made.run(["true"], {})).exit_code == 0  # it goes on
    paths = {one[0] for one in entries_of(folders[0])}
    assert not paths & {"/etc/hosts", "/etc/resolv.conf", "/proc", "/dev"}
    async with provision_podman(config) as other:
        await other.put_files(folders[0])
        assert (await other.run(["sh", "-c", LIST], {})).stdout == before

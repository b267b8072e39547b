"""The script that fetches OpenCode inside a sandbox: any downloader, five tries, and never a file that differs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opencode_env.agents.opencode.state import program

from tests.opencode.archives import DIGEST, GOOD, PROGRAM, STALLED, Archives
from tests.opencode.fake_npm import tgz

TOOLS = ("sh", "tar", "gzip", "cut", "mkdir", "mv", "chmod", "rm", "sha256sum")
DOWNLOADERS = ("curl", "wget", "python3")


class Machine:
    """A PATH with a few tools, on which `sleep` only writes down how long it was asked for."""

    def __init__(self, root: Path, *downloaders: str) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        for name in (*TOOLS, *downloaders):
            found = os.path.realpath(sys.executable) if name == "python3" else shutil.which(name)
            if found is None:
                pytest.skip(f"{name} is not installed here")
            (self.bin / name).symlink_to(found)
        self.target = root / "opencode"
        self._slept = root / "slept"
        self.put("sleep", f'echo "$1" >> {self._slept}')

    def put(self, name: str, command: str) -> None:
        """Put a shell script there."""
        (self.bin / name).write_text(f"#!/bin/sh\n{command}\n")
        (self.bin / name).chmod(0o755)

    def download(
        self, url: str, digest: str = DIGEST, jitter: str = "0", script: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        script = program("download.sh") if script is None else script
        wanted = ["opencode", url, digest, "opencode"]
        argv = [str(self.bin / "sh"), "-c", script, "download", str(self.target), jitter, *wanted]
        env = {"PATH": str(self.bin)}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)

    @property
    def slept(self) -> list[str]:
        return self._slept.read_text().split() if self._slept.exists() else []

    @property
    def left_over(self) -> list[str]:
        """Names beside the target that a failed or finished download left behind."""
        return [path.name for path in self.target.parent.iterdir() if ".part" in path.name]


@pytest.mark.parametrize("downloader", DOWNLOADERS)
@pytest.mark.usefixtures("sandboxes")
def test_any_downloader_will_do(archives: Archives, tmp_path: Path, downloader: str) -> None:
    machine = Machine(tmp_path, downloader)
    result = machine.download(archives.url)
    assert result.returncode == 0, result.stderr
    assert (machine.target / "opencode").read_bytes() == PROGRAM
    assert subprocess.check_output([machine.target / "opencode"], text=True) == "9.9.9\n"
    assert (machine.slept, machine.left_over) == ([], [])


@pytest.mark.parametrize("archives", [(b"", GOOD[:-30], b"<html>", GOOD)], indirect=True)
def test_a_failed_download_is_tried_again_after_longer_and_longer_pauses(archives: Archives, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "python3")
    assert machine.download(archives.url).returncode == 0
    assert (machine.target / "opencode").read_bytes() == PROGRAM
    assert machine.slept == ["1", "2", "4"]


@pytest.mark.parametrize("archives", [(STALLED, GOOD)], indirect=True)
@pytest.mark.parametrize(
    ("downloader", "patience"), [("curl", "--speed-time"), ("wget", "-T"), ("python3", "timeout=")]
)
def test_a_download_that_stalls_is_given_up_and_tried_again(
    archives: Archives, tmp_path: Path, downloader: str, patience: str
) -> None:
    machine = Machine(tmp_path, downloader)
    script = program("download.sh")
    assert f"{patience}60" in script or f"{patience} 60" in script
    impatient = script.replace(f"{patience}60", f"{patience}1").replace(f"{patience} 60", f"{patience} 1")
    assert machine.download(archives.url, script=impatient).returncode == 0
    assert archives.asked == 2


@pytest.mark.parametrize("archives", [(b"", b"", GOOD)], indirect=True)
def test_sandboxes_that_fail_together_do_not_come_back_together(archives: Archives, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "python3")
    assert machine.download(archives.url, jitter="37").returncode == 0
    assert machine.slept == ["1.037", "2.074"]


def test_stages_and_bytes_are_told_and_the_checksums_kept_beside_the_program(
    archives: Archives, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, "python3", "wc")
    told = dict(line.split("=") for line in machine.download(archives.url).stdout.splitlines())
    assert int(told.pop("bytes")) == len(GOOD)
    assert set(told) == {"download", "unpack", "verify"}
    assert all(0 <= float(seconds) < 60 for seconds in told.values())
    assert json.loads((machine.target / "complete.json").read_text()) == {"opencode": DIGEST}


def test_a_program_with_another_checksum_is_never_put_in_place(archives: Archives, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "python3")
    result = machine.download(archives.url, "0" * 64)
    assert result.returncode == 1
    assert f"SHA-256 of the program is {DIGEST}, expected {'0' * 64}" in result.stderr
    assert (archives.asked, machine.slept) == (5, ["1", "2", "4", "8"])
    assert (machine.target.exists(), machine.left_over) == (False, [])


@pytest.mark.parametrize("archives", [(tgz({"other": b""}),), (tgz({"../opencode": PROGRAM}),)], indirect=True)
def test_an_archive_without_the_program_in_its_place_is_never_used(archives: Archives, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "python3")
    result = machine.download(archives.url)
    assert (result.returncode, "download or unpacking failed" in result.stderr) == (1, True), result
    assert not (tmp_path / "opencode" / "opencode").exists()


def test_an_image_with_a_minimal_python_and_no_downloader_gets_a_message_that_names_them(
    archives: Archives, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.put("python3", "exit 1")
    result = machine.download(archives.url)
    assert (result.returncode, "it needs curl, wget or python3" in result.stderr) == (3, True), result
    assert (archives.asked, machine.left_over) == (0, [])

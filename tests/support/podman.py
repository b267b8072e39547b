"""Container images for the tests, made on the spot: no image registry can be expected anywhere.

Invariant: an image's tag names its content, so that a change of its recipe is a new image and an unchanged one is
made once per machine. What podman needs on old kernels (runc, explicit limits) is in a `containers.conf` of ours.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

BASE_IMAGE = "localhost/opencode-env-base:1"
"""A minimal Debian with ca-certificates and python3, nothing else."""

SUITES_IMAGE = "localhost/opencode-env-suites:1"
"""A minimal Debian with git and the whole of python3, for repositories with tests."""

_SUITE = "bookworm"
_PACKAGES = {BASE_IMAGE: "ca-certificates,python3-minimal", SUITES_IMAGE: "ca-certificates,git,python3"}
_COMMANDS = ("podman", "debootstrap")


class Unavailable(Exception):
    """This machine cannot run the containers; the message says what is missing."""


@contextmanager
def containers_conf() -> Iterator[None]:
    """Let every podman of this process use limits and a runtime that work with cgroup v1 as well.

    Without `stop_timeout=0` every removal waits ten seconds for a `sleep` that ignores SIGTERM.
    """
    lines = ["[containers]", 'default_ulimits=["nofile=1024:1024","nproc=4096:4096"]', "[engine]", "stop_timeout=0"]
    if shutil.which("runc"):
        lines.append('runtime="runc"')
    scratch = tempfile.TemporaryDirectory(prefix="containers-conf-")
    with scratch as directory, pytest.MonkeyPatch.context() as patch:
        path = Path(directory, "containers.conf")
        path.write_text("\n".join(lines) + "\n")
        patch.setenv("CONTAINERS_CONF", str(path))
        yield


def base_image(image: str = BASE_IMAGE) -> str:
    """The name of a base image, made with debootstrap (about 30 s) when this machine has none yet.

    Raises:
        Unavailable: podman or debootstrap is missing, or does not work here.
    """
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if "podman" in missing:
        raise Unavailable("podman is not installed")
    with _making():
        if not _exists(image):
            if missing or os.geteuid() != 0:
                raise Unavailable(f"the image {image} is not there, and making it needs debootstrap, run as root")
            _debootstrap(image)
    return image


def derived_image(name: str, recipe: str, files: Mapping[str, Path] | None = None) -> str:
    """The name of an image built on the base image.

    Args:
        name: short name, part of the tag.
        recipe: the lines of the Containerfile after `FROM`.
        files: what the recipe can `COPY`, by name.
    """
    parts = [recipe, *(f"{key}:{path}:{path.stat().st_size}" for key, path in sorted((files or {}).items()))]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    image = f"localhost/opencode-env-{name}:{digest}"
    base = base_image()
    with _making(), tempfile.TemporaryDirectory(prefix="image-") as context:
        if not _exists(image):
            for key, path in (files or {}).items():
                shutil.copy2(path, Path(context, key))
            Path(context, "Containerfile").write_text(f"FROM {base}\n{recipe}\n")
            _podman("build", "--isolation=chroot", "--quiet", "--tag", image, context)
    return image


@contextmanager
def _making() -> Iterator[None]:
    """One process at a time looks for an image and makes it: the tests run in several."""
    with Path(tempfile.gettempdir(), f"opencode-env-images-{os.getuid()}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _exists(image: str) -> bool:
    return subprocess.run(["podman", "image", "exists", image], check=False, capture_output=True).returncode == 0


def _debootstrap(image: str) -> None:
    with tempfile.TemporaryDirectory(prefix="debootstrap-") as directory:
        root = Path(directory, "root")
        argv = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES[image]}", _SUITE, str(root)]
        made = subprocess.run(argv, check=False, capture_output=True, text=True)
        if made.returncode != 0:
            raise Unavailable(f"debootstrap failed ({made.returncode}): {(made.stderr or made.stdout).strip()[-800:]}")
        archive = Path(directory, "root.tar")
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        _podman("import", "--quiet", str(archive), image)


def _podman(*arguments: str) -> str:
    result = subprocess.run(["podman", *arguments], check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise Unavailable(f"podman {arguments[0]} failed ({result.returncode}): {result.stderr.strip()[-800:]}")
    return result.stdout.strip()

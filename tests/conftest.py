"""Fixtures of the whole suite: container images. In CI what they need must be there."""

import os
from collections.abc import Iterator

import pytest

from tests.support.podman import Unavailable, base_image, containers_conf


@pytest.fixture(scope="session")
def podman_image() -> Iterator[str]:
    """Name of a small local image with python3; podman works for as long as this fixture lives.

    Skips where podman or debootstrap is missing, except in CI (`CI` set), where that is a failure.
    """
    with containers_conf():
        try:
            image = base_image()
        except Unavailable as error:
            if os.environ.get("CI"):
                pytest.fail(f"the container tests must run in CI: {error}")
            pytest.skip(f"no containers here: {error}")
        yield image

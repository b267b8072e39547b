"""Containers for the benchmarks that compare with podman: what it needs on a fresh machine is in one place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.podman import Unavailable, containers_conf


@contextmanager
def containers(make_image: Callable[[], str]) -> Iterator[str | None]:
    """The image for the contenders in podman, which works for as long as the body runs.

    Args:
        make_image: makes it where the machine has none yet.

    None, and the reason is printed, where this machine cannot run containers.
    """
    with containers_conf():
        try:
            image = make_image()
        except Unavailable as reason:
            print(f"  without the podman contenders: {reason}", flush=True)
            yield None
        else:
            yield image

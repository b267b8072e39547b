"""Sandboxes on the platform, found by their labels, whoever started them."""

import contextlib
from collections.abc import Iterator, Sequence

from prime_sandboxes import APIClient, APIError, Sandbox, SandboxClient

OURS = "opencode-env"
"""The label of every sandbox that an environment of ours asked for."""
_PAGE = 100
_AT_ONCE = 100


@contextlib.contextmanager
def platform() -> Iterator[SandboxClient]:
    """The SDK's client for a caller without an event loop."""
    api = APIClient()
    try:
        yield SandboxClient(api)
    finally:
        api.client.close()


def list_sandboxes(client: SandboxClient, labels: Sequence[str]) -> list[Sandbox]:
    """The sandboxes that live and carry all of `labels`, over all pages; while others end, a page may miss some.

    Raises:
        APIError: the platform cannot be asked.
    """
    found: list[Sandbox] = []
    page = 1
    while True:
        answer = client.list(labels=list(labels) or None, page=page, per_page=_PAGE, exclude_terminated=True)
        found += (one for one in answer.sandboxes if set(labels) <= set(one.labels))  # they may be somebody else's
        if not answer.has_next:
            return found
        page += 1


def delete_sandboxes(client: SandboxClient, ids: Sequence[str]) -> dict[str, str]:
    """Delete sandboxes, many with one request; what could not be deleted, with the reason."""
    failed: dict[str, str] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = list(ids[start : start + _AT_ONCE])
        try:
            answer = client.bulk_delete(sandbox_ids=some)
        except APIError as error:
            failed |= dict.fromkeys(some, str(error))
        else:
            failed |= {one.get("sandbox_id", "?"): one.get("error", "no reason given") for one in answer.failed}
    return failed

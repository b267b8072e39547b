"""Sandboxes on the platform, found by their labels, whoever started them."""

import contextlib
import time
from collections.abc import Iterator, Sequence

import httpx
from prime_sandboxes import APIClient, Sandbox, SandboxClient

from rollout_sandbox.prime.sdk_errors import reason_of

OWN_LABEL = "opencode-env"
"""The label of every sandbox that an environment of ours asked for."""
_AT_ONCE = 100
_ANSWER_S = 30.0
"""For one answer. The SDK says as much of itself, and then waits without end (0.5.1)."""


@contextlib.contextmanager
def platform(within: float | None = None) -> Iterator[SandboxClient]:
    """The SDK's client for a caller without an event loop; `within` so many seconds it asks for nothing more."""
    deadline = None if within is None else time.monotonic() + within

    def bounded(request: httpx.Request) -> None:
        left = _ANSWER_S if deadline is None else min(_ANSWER_S, deadline - time.monotonic())
        if left <= 0:
            raise httpx.ReadTimeout(f"the platform did not do it within {within:g} s", request=request)
        request.extensions["timeout"] = httpx.Timeout(left).as_dict()

    api = APIClient()
    api.client.event_hooks = {"request": [bounded]}
    try:
        yield SandboxClient(api)
    finally:
        api.client.close()


def list_sandboxes(client: SandboxClient, labels: Sequence[str]) -> list[Sandbox]:
    """The sandboxes that live and carry all of `labels`, over all pages; while others end, a page may miss some. It
    raises what `errors.SDK_ERRORS` has."""
    found: list[Sandbox] = []
    page = 1
    while True:
        answer = client.list(labels=list(labels) or None, page=page, per_page=100, exclude_terminated=True)
        found += (one for one in answer.sandboxes if set(labels) <= set(one.labels))  # they may be somebody else's
        if not answer.has_next or not answer.sandboxes:
            return found
        page += 1


def delete_sandboxes(client: SandboxClient, ids: Sequence[str]) -> dict[str, str]:
    """Delete sandboxes, many with one request; what could not be deleted, with the reason."""
    failed: dict[str, str] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = list(ids[start : start + _AT_ONCE])
        try:
            answer = client.bulk_delete(sandbox_ids=some)
        except Exception as error:  # noqa: BLE001 - whatever it is, they live on
            failed |= dict.fromkeys(some, reason_of(error))
        else:
            failed |= {one.get("sandbox_id", "?"): one.get("error", "no reason given") for one in answer.failed}
    return failed

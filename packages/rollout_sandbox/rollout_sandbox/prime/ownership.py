"""Who owns a sandbox, from the request that creates it to its deletion, and sandboxes found by their labels.

A request carries a label and a key that no other sandbox's has, so that it makes one however often it is sent. When its
answer is lost, whatever it made is found by the label and deleted. What was deleted before anybody saw it run may come
up nevertheless: it is looked for again for some minutes. As the process ends, all that it may still have is deleted.
"""

import asyncio
import atexit
import contextlib
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import httpx
from prime_sandboxes import APIClient, APIError, CreateSandboxRequest, Sandbox, SandboxClient

from rollout_sandbox.compat import forget_access
from rollout_sandbox.errors import SandboxAccessError
from rollout_sandbox.prime.queue import StartRecord, recorded
from rollout_sandbox.prime.sdk_errors import http_status, kind_of, reason_of, repeated

logger = logging.getLogger("verifiers.v1.rollout_sandbox.prime")

OWN_LABEL = "opencode-env"
"""The label of every sandbox that an environment of ours asked for."""
_AT_ONCE = 100
_ANSWER_S = 30.0
"""For one answer. The SDK says as much of itself, and then waits without end (0.5.1)."""

_FIRST_LOOK_S = 1.0
"""No sandbox is up within less; the SDK looks at once, then after 1 s, 1.5 s, … more."""
_DELETION_S = 30.0
"""For one try of it; the SDK waits without end."""
_DELETION_PAUSES_S = (0.5, 2.0, 5.0)
_LOST_PAUSES_S = (0.0, 1.0, 1.0)
"""Before looks: a creation whose answer was lost may still be on its way."""
_LATE_PAUSES_S = (1.0, 4.0, 15.0, 40.0, 120.0)
"""Before looks for what was deleted while the platform still made it."""
_EXIT_S = 60.0
"""For all that the end of the process deletes."""

_MAY_LIVE: "dict[str, Ownership]" = {}
"""What this process asked for and does not know to be deleted, by its label."""
_LOOKING: set[asyncio.Task[None]] = set()
_LOOKERS = ThreadPoolExecutor(2, "prime-late")


class Ownership:
    """One sandbox's, which is asked for or not, known by its id, or deleted; a lifetime of -1 has no end."""

    def __init__(self, name: str, lifetime_minutes: int) -> None:
        self.label = f"sandbox:{name}"
        self._key = uuid.uuid4().hex
        self._lifetime_minutes = lifetime_minutes
        self.asked = False
        """Whether there may be a sandbox."""
        self.id: str | None = None
        self.labels: list[str] = []
        self.idle_minutes: int | None = None
        """After which the platform ends the sandbox when nobody asks anything of it."""
        self.deleted_unseen = False
        """Whether it was deleted while the platform may still have been making it, and may come yet."""

    def stamped(self, request: CreateSandboxRequest) -> CreateSandboxRequest:
        """The request with our labels, our key and the lifetime; idle for longer would be refused."""
        self.labels = list(dict.fromkeys([*request.labels, OWN_LABEL, self.label]))
        idle, lifetime = request.idle_timeout_minutes, self._lifetime_minutes
        if idle is not None and lifetime > 0:
            idle = min(idle, lifetime)
        self.idle_minutes = idle
        ours = {"labels": self.labels, "idempotency_key": self._key}
        return request.model_copy(update={**ours, "timeout_minutes": lifetime, "idle_timeout_minutes": idle})

    def lost(self) -> bool:
        """Whether there may be a sandbox of which nobody has the id."""
        return self.asked and self.id is None

    def over(self) -> None:
        """There is no sandbox any more, or there never was."""
        self.asked = False
        _MAY_LIVE.pop(self.label, None)

    def look_for_late(self, *, deleted: bool) -> None:
        """Look again for a sandbox that nobody saw run, `deleted` or not as the platform says, beside whatever goes on;
        the end of the event loop ends that, and the end of the process looks once more."""
        self.asked, self.deleted_unseen, self.id = False, deleted, None
        _MAY_LIVE[self.label] = self
        task = asyncio.create_task(self._look())
        _LOOKING.add(task)
        task.add_done_callback(_LOOKING.discard)

    async def _look(self) -> None:
        failed = dict[str, str]()
        for pause in _LATE_PAUSES_S:
            await asyncio.sleep(pause)
            made, failed = await asyncio.get_running_loop().run_in_executor(_LOOKERS, self._delete_made)
            if made:
                logger.warning("prime sandbox %s came up after its deletion, and is deleted", ", ".join(made))
        for sandbox, reason in failed.items():
            report_left(sandbox, self, reason)
        if self.deleted_unseen and not failed:
            self.over()

    def _delete_made(self, pauses: Sequence[float] = (0.0,)) -> tuple[list[str], dict[str, str]]:
        """Look for what carries the label, after each of the pauses until something was there and is deleted
        (blocking); all that was there, and why something could not be deleted."""
        found, failed = list[str](), dict[str, str]()
        try:
            with platform() as client:
                for pause in pauses:
                    time.sleep(pause)
                    made = [sandbox.id for sandbox in list_sandboxes(client, [self.label])]
                    found, failed = found + made, delete_sandboxes(client, made)
                    if found and not failed:
                        break
        except Exception as error:  # noqa: BLE001 - whatever it is, a sandbox may live on
            failed = failed or {"without a known id": reason_of(error)}
        return found, failed

    def find_and_delete(self) -> bool:
        """Delete what a creation made whose answer was lost, or report it (blocking); whether that was done."""
        self.asked = False
        found, failed = self._delete_made(_LOST_PAUSES_S)
        for sandbox, reason in failed.items():
            report_left(sandbox, self, reason)
        if not found and not failed:
            logger.warning("a Prime sandbox whose creation was not answered may come yet; its label is %s", self.label)
        return bool(found) and not failed


class OwnedClient:
    """The SDK's client, as one runtime uses it: its sandbox is created and deleted under an `Ownership`."""

    def __init__(self, client: Any, ownership: Ownership, record: StartRecord) -> None:
        self._client = client
        self._ownership = ownership
        self._record = record
        self._up = False
        """Whether somebody saw the sandbox run."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create(self, request: CreateSandboxRequest) -> Any:
        """Ask for the sandbox; after an `APIError` there is none, or nobody knows."""
        own, record = self._ownership, self._record
        request = own.stamped(request)
        own.asked = True
        _MAY_LIVE[own.label] = own
        started, refused = time.monotonic(), record.waited["refused"]
        try:
            sandbox = await recorded(self._client, record).create(request)
        except APIError:
            if record.unclear <= 0:
                own.over()
            raise
        record.created_at = time.monotonic()
        record.seconds["create"] = record.created_at - started - (record.waited["refused"] - refused)
        own.id = sandbox.id
        self._up = sandbox.status == "RUNNING"
        return sandbox

    async def wait_for_creation(self, sandbox_id: str, **options: Any) -> None:
        """Wait until the sandbox is up, without a look at once, which would not find it so."""
        if not self._up:
            await asyncio.sleep(_FIRST_LOOK_S)
        await repeated(lambda: self._client.wait_for_creation(sandbox_id, **options))
        self._up = True

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        """Run a short command that can be repeated; verifiers makes the work directory with one."""
        return await repeated(lambda: self._client.execute_command(*arguments, **options))

    async def delete(self, sandbox_id: str) -> None:
        """Delete the sandbox; tried again when that fails, and reported when it fails for good."""
        for pause in (*_DELETION_PAUSES_S, None):
            try:
                async with asyncio.timeout(_DELETION_S):
                    await self._client.delete(sandbox_id)
                break
            except Exception as error:  # noqa: BLE001 - whatever it is, the sandbox lives on
                if http_status(error) == HTTPStatus.NOT_FOUND:
                    break
                if pause is None or kind_of(error) is SandboxAccessError:
                    report_left(sandbox_id, self._ownership, reason_of(error))
                    return
                await asyncio.sleep(pause)
        if self._up:
            self._ownership.over()
        else:
            self._ownership.look_for_late(deleted=True)
        await forget_access(self._client, sandbox_id)


def report_left(sandbox: str, own: Ownership, reason: str) -> None:
    """Say what may still cost something, and how to end it."""
    logger.error(
        "prime sandbox %s could not be deleted and costs until its lifetime is over: %s; its labels find it: %s",
        sandbox,
        reason,
        ", ".join(own.labels),
    )


@atexit.register
def look_again() -> None:
    """Delete, as the process ends, all that it may have left, at once and within a deadline; say what that is."""
    if not _MAY_LIVE:
        return
    failures = {"": "interrupted"}
    try:
        logger.warning("deleting %d sandboxes that this process may have at Prime, for %g s", len(_MAY_LIVE), _EXIT_S)
        with platform(_EXIT_S) as client:
            for number, pause in enumerate(_LOST_PAUSES_S):
                time.sleep(pause)
                failures = _delete_rest(client, first=number == 0)
                if not _MAY_LIVE:
                    return
    except Exception as error:  # noqa: BLE001 - whatever it is, they live on
        failures = {"": reason_of(error)}
    finally:  # also of an interruption
        for own in _rest():
            if own.deleted_unseen and own.id is None and not failures:
                own.over()  # nothing came
        if _MAY_LIVE:
            known = failures or any(own.id for own in _rest())
            logger.log(
                logging.ERROR if known else logging.WARNING,  # what nobody ever saw may never come
                "%d sandboxes at Prime may live on and cost until their lifetime is over (%s): %s",
                len(_MAY_LIVE),
                "; ".join(sorted(set(failures.values()))) or "they were not found",
                "; ".join(f"{own.id or 'without a known id'}, labels {', '.join(own.labels)}" for own in _rest()),
            )
            _MAY_LIVE.clear()


def _rest() -> list[Ownership]:
    return list(_MAY_LIVE.values())


def _delete_rest(client: SandboxClient, *, first: bool) -> dict[str, str]:
    """Look once for what is left, and delete it; why something could not be."""
    failures: dict[str, str] = {}
    shared = set.intersection(*(set(own.labels) for own in _rest()))
    try:
        made = list_sandboxes(client, sorted(shared))
    except Exception as error:  # noqa: BLE001 - what has an id is deleted nevertheless
        failures["list"] = reason_of(error)
    else:
        for one in made:
            for own in (_MAY_LIVE[label] for label in one.labels if label in _MAY_LIVE):
                own.id = one.id
        living = {one.id for one in made}
        for own in _rest():
            if not first and own.id is not None and own.id not in living:
                own.over()
    failed = delete_sandboxes(client, [own.id for own in _rest() if own.id is not None])
    for own in _rest():
        if own.id is not None and own.id not in failed:
            own.over()
    return failures | failed


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
    """The sandboxes that live and carry all of `labels`, over all pages; while others end, a page may miss some."""
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

"""The sandboxes that the server hands out: their records, their lives, and the box behind each."""

import asyncio
import contextlib
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rollout_sandbox.confined import Bind, BubblewrapBackend, ConfinedRuntime, LocalSandboxConfig

from tests.support.prime_api.box import Box
from tests.support.prime_api.sessions import Sessions

OVER = ("ERROR", "TERMINATED", "TIMEOUT")
_TOKEN_LIFETIME = timedelta(hours=1)


@dataclass(frozen=True)
class Plan:
    """How the life of a sandbox goes."""

    build_s: float = 0.0
    """Seconds that its image is built for, as on an image's first use."""
    boot_s: float = 0.0
    """Seconds from then on until it is RUNNING."""
    never_ready: bool = False
    """It stays PROVISIONING."""
    fails: str | None = None
    """The `errorType` with which it ends instead of running."""
    gateway_misses: int = 0
    """How many commands the gateway does not know it for, once it is RUNNING."""
    expired_tokens: int = 0
    """How many of its first tokens are over for the gateway already."""
    outlives_deletion: bool = False
    """Deleted before it runs, it comes up nevertheless, when it is due."""


BoxOf = Callable[[Sequence[Bind], str], Box]


class Confined(ConfinedRuntime):
    """A confined local sandbox, in which everything really runs."""

    async def start(self) -> None:
        await self.backend.start()

    async def stop(self) -> None:
        await self.backend.stop()


def confined(binds: Sequence[Bind], name: str) -> Confined:
    """One, not started yet."""
    return Confined(BubblewrapBackend(LocalSandboxConfig(network="host", max_disk=None), binds, name))


@dataclass
class Sandbox:
    """One sandbox, from the request for it on."""

    request: Mapping[str, Any]
    plan: Plan
    status: str = "PENDING"
    error_type: str | None = None
    id: str = field(default_factory=lambda: f"sbx-{uuid.uuid4().hex[:12]}")
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    box: Box | None = None
    sessions: Sessions | None = None
    building: bool = False
    tokens: list[str] = field(default_factory=list)
    policy: dict[str, Any] = field(default_factory=lambda: {"allowlist": None, "denylist": None})
    misses: int = 0
    full: bool = False
    """Whether no file can be written any more, as far as the gateway says."""
    used: float = 0.0
    """When its gateway was last asked for something, by the monotonic clock; at first, when it ran."""

    @property
    def labels(self) -> Sequence[str]:
        """What it is found by."""
        labels: Sequence[str] = self.request.get("labels", ())
        return labels

    @property
    def over(self) -> bool:
        """Whether it costs nothing any more."""
        return self.status in OVER

    def record(self) -> dict[str, Any]:
        """What the platform says of it."""
        request, now = self.request, datetime.now(UTC).isoformat()
        return {
            "id": self.id,
            "name": request["name"],
            "dockerImage": request.get("docker_image") or "from-checkpoint",
            "cpuCores": request.get("cpu_cores", 1),
            "memoryGB": request.get("memory_gb", 1),
            "diskSizeGB": request.get("disk_size_gb", 5),
            "diskMountPath": "/",
            "gpuCount": request.get("gpu_count", 0),
            "vm": True,
            "status": self.status,
            "timeoutMinutes": request.get("timeout_minutes", 60),
            "idleTimeoutMinutes": request.get("idle_timeout_minutes"),
            "labels": list(self.labels),
            "createdAt": self.created.isoformat(),
            "updatedAt": now,
            "errorType": self.error_type,
            "errorMessage": f"the test says {self.error_type}" if self.error_type else None,
            "pendingImageBuildId": "build-1" if self.building else None,
        }

    def auth(self, gateway: str) -> dict[str, Any]:
        """A fresh way in through the gateway."""
        token = secrets.token_urlsafe(16)
        self.tokens.append(token)
        over = (datetime.now(UTC) + _TOKEN_LIFETIME).isoformat()
        return {"gateway_url": gateway, "user_ns": "tests", "job_id": self.id, "token": token, "expires_at": over}

    def admits(self, header: str) -> bool:
        """Whether the gateway lets in a request with this authorization."""
        return header.removeprefix("Bearer ") in self.tokens[self.plan.expired_tokens :]


class Sandboxes:
    """All sandboxes of one server.

    Args:
        images: what a sandbox of an image shows beyond this machine's own system, read-only.
        minute_s: seconds that a minute of a sandbox's lifetime has.
        box_of: makes what stands behind a sandbox, not started yet.
    """

    def __init__(self, images: Mapping[str, Sequence[Bind]], minute_s: float, box_of: BoxOf) -> None:
        self.all: dict[str, Sandbox] = {}
        self.plan = Plan()
        self._images = images
        self._minute_s = minute_s
        self._box_of = box_of
        self._by_key: dict[str, Sandbox] = {}
        self._lives: set[asyncio.Task[None]] = set()

    async def create(self, request: Mapping[str, Any]) -> Sandbox:
        """The sandbox of a request, which may have been sent before."""
        key = str(request.get("idempotency_key"))
        if key in self._by_key:
            return self._by_key[key]
        sandbox = self._by_key[key] = Sandbox(request, self.plan)
        self.all[sandbox.id] = sandbox
        sandbox.misses, sandbox.building = sandbox.plan.gateway_misses, sandbox.plan.build_s > 0
        if sandbox.plan == Plan(expired_tokens=sandbox.plan.expired_tokens):
            await self._boot(sandbox)
        else:
            self._live(self._arrive(sandbox))
        if (minutes := request.get("timeout_minutes", 60)) > 0:
            self._live(self._expire(sandbox, minutes * self._minute_s))
        return sandbox

    def _live(self, life: Any) -> None:
        task = asyncio.create_task(life)
        self._lives.add(task)
        task.add_done_callback(self._lives.discard)

    async def _arrive(self, sandbox: Sandbox) -> None:
        await asyncio.sleep(sandbox.plan.build_s)
        sandbox.building, sandbox.status = False, sandbox.status if sandbox.over else "PROVISIONING"
        await asyncio.sleep(sandbox.plan.boot_s)
        if sandbox.plan.fails is not None:
            await self.end(sandbox, "ERROR", sandbox.plan.fails)
        elif not sandbox.plan.never_ready:
            await self._boot(sandbox)

    async def _boot(self, sandbox: Sandbox) -> None:
        late = sandbox.plan.outlives_deletion and sandbox.status == "TERMINATED"
        if sandbox.over and not late:
            return
        binds = self._images.get(str(sandbox.request.get("docker_image")), ())
        box = sandbox.box = self._box_of(binds, sandbox.id)
        await box.start()
        sandbox.sessions = Sessions(box, sandbox.request.get("environment_vars") or {})
        ended = sandbox.over and not late
        if ended or sandbox.id not in self.all:
            await box.stop()
        else:
            sandbox.status, sandbox.used = "RUNNING", time.monotonic()
            if (minutes := sandbox.request.get("idle_timeout_minutes")) is not None:
                self._live(self._end_idle(sandbox, minutes * self._minute_s))

    async def _expire(self, sandbox: Sandbox, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.end(sandbox, "TIMEOUT", "TIMEOUT")

    async def _end_idle(self, sandbox: Sandbox, seconds: float) -> None:
        while (left := sandbox.used + seconds - time.monotonic()) > 0:
            await asyncio.sleep(left)
        await self.end(sandbox, "TIMEOUT", "IDLE_TIMEOUT")

    async def end(self, sandbox: Sandbox, status: str = "TERMINATED", error_type: str | None = None) -> None:
        """End a sandbox, as its owner or its machine does; idempotent."""
        if sandbox.over:
            return
        sandbox.status, sandbox.error_type = status, error_type
        box, sandbox.box = sandbox.box, None
        if sandbox.sessions is not None:
            await sandbox.sessions.close()
        if box is not None:
            await box.stop()

    async def close(self) -> None:
        """End all."""
        for life in list(self._lives):
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        for sandbox in self.all.values():
            with contextlib.suppress(Exception):
                await self.end(sandbox)

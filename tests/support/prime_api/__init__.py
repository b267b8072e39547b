"""A local server that speaks the API of Prime Sandboxes, with a confined local sandbox behind each that it hands out.

`PrimeApi` is what tests start. The real `prime-sandboxes` SDK and verifiers' own Prime runtime talk to it through
`PRIME_API_KEY` and `PRIME_API_BASE_URL`, and what they start in a sandbox really runs.

This is the one place that says where its behaviour comes from.

Read in the source of prime-sandboxes 0.5.1 (`sandbox.py`, `core/client.py`, `models.py`, `process.py`,
`rpc_command_session.py`) and of verifiers 0.4.0 (`v1/runtimes/prime.py`):

- Paths, methods, parameters and the fields of every answer; the key as a bearer; 401 and 402 as their own errors; 429
  waits 10 s and 30 s; 502, 503 and 504 are tried three times where a request can be repeated.
- `idempotency_key`: a creation that is sent again is the same sandbox. `gatewayAuth` in its answer saves `POST /auth`.
- The life of a sandbox: PENDING with `pendingImageBuildId` while an image is built, PROVISIONING, RUNNING, and ERROR,
  TERMINATED or TIMEOUT with `errorType` (OOM_KILLED, TIMEOUT, IMAGE_PULL_FAILED). RUNNING may come before the gateway
  knows the sandbox; that is the Connect code NOT_FOUND then.
- `status:batchGet` takes 100 ids and says NOT_FOUND of one that it does not know.
- The gateway: a token for each sandbox, 401 when it is over; 410 `sandbox_terminated` and 502 `sandbox_not_found`; 408
  and 5xx in passing; 409 for a sandbox that is not ready, with the reason behind `/error-context`.
- Commands are Connect RPCs (`command_session.CommandSession`) of `/bin/bash -c …`. `Start` with a known `session_uuid`
  attaches, `Connect` attaches; both say the start again, replay no output, and tell the end of one that has ended.
  `SendInput` and `SendSignal` are applied once for each of their own uuids.
- `read-file` gives a whole file of a virtual machine, whatever window was asked for, and 413 for one that is too large.
- Uploads make parents and act as the default user; paths are absolute.

Assumed, because neither says it:

- A list holds the sandboxes of the team that it names, or those of no team; a team of others is 403.
- Labels in a list and in a bulk deletion must all be there. A deleted sandbox stays known as TERMINATED, and deleting
  it again is 404, as is one that was never there. Lists are newest first.
- A sandbox that is deleted before it runs can come up nevertheless, as users report (`Plan.outlives_deletion`).
- A quota that is used up is 402; too many sandboxes at once is 429.
- A signal reaches the process that `Start` started, and no other. A process without `session_uuid` lives on when its
  client is gone, as one with it does; its end is kept for as long as its sandbox.
- `timeout_minutes` counts from the creation; -1 means no limit. `idle_timeout_minutes` counts from the
  last request to the gateway (not a command that runs on): TIMEOUT with the reason IDLE_TIMEOUT; beyond the lifetime
  it is refused (422), as the SDK's own check of a request does.
- An upload to a full disk is 500 with the system's words (`Sandbox.full`).
- The limit of `read-file` is 16 MiB.

Different from a virtual machine of Prime's: commands run as uid 1000 on a root that is read-only (the writable places
are /app, /tmp, /home, /logs, /run); there is no second user; an egress policy is kept and not enforced; the network is
this machine's, so an own URL of the interception is one on its loopback.

What the suites of every kind of sandbox skip in these, with one of the reasons below: whatever needs root in the
sandbox (agents with a user of their own, agent code that runs apart from the scoring), and tool servers of this
machine, which verifiers shows a remote agent through a Prime tunnel: its client downloads a program.
"""

from tests.support.prime_api.apart import serving_apart
from tests.support.prime_api.faults import Fault
from tests.support.prime_api.images import OPENCODE_IMAGE, with_opencode
from tests.support.prime_api.sandboxes import Plan
from tests.support.prime_api.server import PrimeApi

NO_ROOT = "the local server's sandboxes have no root, as a Prime sandbox has"
NO_TUNNEL = "a Prime tunnel cannot be opened here: its client downloads a program"

__all__ = ["NO_ROOT", "NO_TUNNEL", "OPENCODE_IMAGE", "Fault", "Plan", "PrimeApi", "serving_apart", "with_opencode"]

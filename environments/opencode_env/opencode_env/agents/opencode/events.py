"""What OpenCode's own log says: its JSON event stream, read from the end and bounded.

The agent can write into that file, so nothing here decides alone whether a run was sound: calls at the interception
and, before the first tool call, the exit code do. The log explains.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from opencode_rubrics import require_alive, run_checked
from verifiers.v1.errors import HarnessError
from verifiers.v1.runtimes import Runtime

from opencode_env.agents.opencode.state import program

EVENTS_TAIL_BYTES = 256 * 1024
"""How much of the end of the event stream is read: more than the largest single event."""

_MOST_EVENTS = 4000
"""Lines of that which are parsed: more than OpenCode writes into it."""
_SESSION = re.compile(r"ses_[A-Za-z0-9]{10,64}")
SEPARATOR = "\x1eopencode-env\x1e"
"""Between events and standard error where both come in one output."""


@dataclass(frozen=True)
class ErrorEvent:
    """An `error` event: OpenCode's name for the failure and its message."""

    name: str
    message: str


@dataclass(frozen=True)
class RunLog:
    """The end of one rollout's log."""

    session_id: str | None = None
    error: ErrorEvent | None = None
    """The last event, when it was an error; an error that OpenCode worked on after is not one."""
    events_tail: str = ""
    stderr_tail: str = ""

    def tail(self, size: int) -> str:
        """The last `size` bytes of the events, followed by the last `size` of standard error when there is any."""
        parts = [_last(self.events_tail, size), _last(self.stderr_tail, size)]
        return "\n".join(part for part in parts if part)


async def read_log(runtime: Runtime, state: str) -> RunLog:
    """Read the end of the log in `state`.

    Raises:
        HarnessError: when the log cannot be read in a sandbox that lives: the agent can have seen to that.
    """
    argv = ["sh", "-c", program("tails.sh"), "tails", state, str(EVENTS_TAIL_BYTES), SEPARATOR]
    failure = "cannot read OpenCode's log"
    result = await run_checked(runtime, argv, failure, accepted=range(256), error=HarnessError)  # told by its content
    log = split_log(result.stdout)
    if log is None:
        await require_alive(runtime, "reading OpenCode's log")
        raise HarnessError(f"cannot read OpenCode's log: it was cut off, {result.stderr.strip()[-500:]}")
    return log


def split_log(output: str) -> RunLog | None:
    """The log in the output of `tails.sh` or `launch.sh`; None when it was cut before the separator."""
    events, found, stderr = output.rpartition(SEPARATOR)
    return parse_log(events, stderr) if found else None


def parse_log(events: str, stderr: str) -> RunLog:
    """Parse the end of an event stream; lines end at `\\n` only, and a first cut line is skipped."""
    session: str | None = None
    error: ErrorEvent | None = None
    for line in events.split("\n")[-_MOST_EVENTS:]:
        event = _event(line)
        if event is None:
            continue
        found = event.get("sessionID")
        if isinstance(found, str) and _SESSION.fullmatch(found):
            session = found
        error = _error(event) if event.get("type") == "error" else None
    return RunLog(session, error, events, stderr)


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # the agent can write anything into the log, deep nesting included
        return None
    return event if isinstance(event, dict) else None


def _error(event: dict[str, Any]) -> ErrorEvent:
    error = event.get("error")
    if not isinstance(error, dict):
        return ErrorEvent("UnknownError", str(error)[:2000])
    data = error.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    return ErrorEvent(str(error.get("name") or "UnknownError"), str(message or error)[:2000])


def _last(text: str, size: int) -> str:
    return text.encode(errors="replace")[-size:].decode(errors="ignore").strip() if size else ""

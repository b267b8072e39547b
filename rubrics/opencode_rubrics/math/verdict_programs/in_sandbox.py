"""The scorer in the sandbox: one request on standard input, one result on standard output.

Invariant: the reference exists in this process's memory only: it arrives over standard input after the process made
itself unreadable for others of its user, and is never written anywhere. The result carries the request's nonce.

request: one line of JSON with `nonce`, `reference`, `path`, `max_bytes`, `seconds`, `question`, `unrounded`
result: one line of JSON with `nonce` and `state`: "verdict" (with `verdict`), "unusable" (with `reason`),
"timed_out", "crashed" (with `reason`) or "no_reference"
"""

import contextlib
import ctypes
import json
import os
import stat
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Any

from mathverdict.bounded import BROKE_DOWN, DEADLINE_SIGNAL, in_child
from mathverdict.errors import EmptyReference
from mathverdict.verdict import verify_text

READY = "opencode-rubrics scorer"
"""The first line of output: from here on the interpreter and the libraries are known to work."""

_PR_SET_DUMPABLE = 4


class UnusableAnswer(Exception):
    """There is no usable answer; the message is the reason, in one word."""


def main() -> None:
    os.chdir("/")
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    print(READY, flush=True)  # noqa: T201 - the result channel
    request = json.loads(sys.stdin.readline())
    result: dict[str, Any]
    try:
        text = read_answer(request["path"], request["max_bytes"])
        result = {**_judged(request, text), "text": text}
    except UnusableAnswer as unusable:
        result = {"state": "unusable", "reason": str(unusable)}
    print(json.dumps({"nonce": request["nonce"], **result}), flush=True)  # noqa: T201 - the result channel


def _judged(request: dict[str, Any], text: str) -> dict[str, Any]:
    """The verdict, made in a child that may run out of time or memory."""
    outcome = in_child(partial(_verified, request, text), request["seconds"])
    if isinstance(outcome, str):
        found: dict[str, Any] = json.loads(outcome)
        return found
    if outcome == -DEADLINE_SIGNAL:
        return {"state": "timed_out"}
    if outcome in BROKE_DOWN:
        return {"state": "unusable", "reason": "crashed"}
    return {"state": "crashed", "reason": f"exit code {outcome}"}


def _verified(request: dict[str, Any], text: str) -> str:
    told = {name: request[name] for name in ("question", "unrounded")}
    started = time.perf_counter()
    try:
        verdict = verify_text(request["reference"], text, "file", **told)
    except EmptyReference:
        return json.dumps({"state": "no_reference"})
    found = {**asdict(verdict), "answer": verdict.answer[:4000]}
    return json.dumps({"state": "verdict", "verdict": found, "seconds": time.perf_counter() - started})


def read_answer(path: str, max_bytes: int) -> str:
    """The UTF-8 text of the file at `path`; no link is followed at the path itself, and nothing is waited for. Nothing,
    or anything but a regular UTF-8 file of at most `max_bytes`, is an `UnusableAnswer`."""
    try:
        # Without O_NONBLOCK a FIFO would be waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise UnusableAnswer(_why_not_opened(path)) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UnusableAnswer("not_a_file")
        data = b""
        while len(data) <= max_bytes and (block := os.read(fd, max_bytes + 1 - len(data))):
            data += block
    finally:
        os.close(fd)
    if len(data) > max_bytes:
        raise UnusableAnswer("oversized")
    with contextlib.suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return data.decode("utf-8")
    raise UnusableAnswer("binary")


def _why_not_opened(path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return "absent"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "unreadable" if stat.S_ISREG(mode) else "not_a_file"

"""The scorer in the sandbox: one request on standard input, one result on standard output.

Invariant: the reference exists in this process's memory only: it arrives over standard input after the process made
itself unreadable for others of its user, and is never written anywhere. The result carries the request's nonce.

request: one line of JSON with `nonce`, `reference`, `path`, `max_bytes`, `seconds`
result: one line of JSON with `nonce` and `state`: "verdict" (with `verdict`), "unusable" (with `reason`),
"timed_out", "crashed" (with `reason`) or "no_reference"
"""

import ctypes
import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any

from .answer_file import UnusableAnswer, read_answer
from .deadline import BROKE_DOWN, DEADLINE_SIGNAL, cpu_deadline, limit_memory
from .verdict import EmptyReference, verify_text

READY = "opencode-rubrics scorer"
"""The first line of output: from here on the interpreter and the libraries are known to work."""

_PR_SET_DUMPABLE = 4


def main() -> None:
    """Serve one request."""
    os.chdir("/")
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    print(READY, flush=True)  # noqa: T201 - the result channel
    request = json.loads(sys.stdin.readline())
    result = {"nonce": request["nonce"], **_result(request)}
    print(json.dumps(result), flush=True)  # noqa: T201 - the result channel


def _result(request: dict[str, Any]) -> dict[str, Any]:
    try:
        text = read_answer(request["path"], request["max_bytes"])
    except UnusableAnswer as unusable:
        return {"state": "unusable", "reason": str(unusable)}
    outcome = _in_child(request["reference"], text, request["seconds"])
    return {**outcome, "text": text}


def _in_child(reference: str, text: str, seconds: float) -> dict[str, Any]:
    """The verdict, made in a child that may run out of time or memory."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, _verified(reference, text, seconds).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -DEADLINE_SIGNAL:
        return {"state": "timed_out"}
    if status in BROKE_DOWN:
        return {"state": "unusable", "reason": "crashed"}
    if status != 0 or not data:
        return {"state": "crashed", "reason": f"exit code {status}"}
    outcome: dict[str, Any] = json.loads(data)
    return outcome


def _verified(reference: str, text: str, seconds: float) -> str:
    limit_memory()
    started = time.perf_counter()
    try:
        with cpu_deadline(seconds):
            verdict = verify_text(reference, text, "file")
    except EmptyReference:
        return json.dumps({"state": "no_reference"})
    found = {**asdict(verdict), "answer": verdict.answer[:4000]}
    return json.dumps({"state": "verdict", "verdict": found, "seconds": time.perf_counter() - started})

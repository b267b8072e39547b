"""The gateway, which leads to one sandbox each: its files and its commands."""

import time
from datetime import UTC, datetime
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.support.prime_api.faults import send_answer
from tests.support.prime_api.sandboxes import Sandbox, Sandboxes

READ_LIMIT_BYTES = 16 << 20
_MOST_BYTES = 1 << 30
_STREAMS = ("Start", "Connect")
_FILES = {"upload": "upload", "download": "download", "read-file": "read_file"}


def route_name(path: str) -> str:
    """What a request to the gateway is called."""
    last = path.rpartition("/")[2]
    return _FILES.get(last, last)


class Gateway:
    """An ASGI application for paths `/NAMESPACE/JOB/…`, the job being the sandbox."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        _, _, job, rest = scope["path"].split("/", 3)
        request = Request(scope, receive)
        sandbox = self._sandboxes.all.get(job)
        if sandbox is not None:
            sandbox.used = time.monotonic()
        if sandbox is not None and not sandbox.over and not sandbox.admits(request.headers.get("authorization", "")):
            refused = JSONResponse({"code": "unauthenticated", "message": "token is over"}, 401)
            await refused(scope, receive, send)
        elif rest in _FILES:
            response = await self._file(request, sandbox, rest)
            await response(scope, receive, send)
        else:
            await self._command(scope, receive, send, sandbox, rest)

    async def _file(self, request: Request, sandbox: Sandbox | None, what: str) -> Response:
        if sandbox is None:
            return JSONResponse({"error": "sandbox_not_found"}, 502)
        if sandbox.over:
            return JSONResponse({"error": "sandbox_terminated"}, 410)
        if sandbox.box is None:
            return JSONResponse({"error": "sandbox is not ready"}, 409)
        path = request.query_params["path"]
        if not path.startswith("/"):
            return JSONResponse({"detail": "path must be absolute"}, 400)
        if what == "upload" and sandbox.full:
            return JSONResponse({"detail": f"write {path}: no space left on device"}, 500)
        if what == "upload":
            async with request.form(max_part_size=_MOST_BYTES) as form:
                file: Any = form["file"]
                data = await file.read()
            await sandbox.box.write(path, data)
            now = datetime.now(UTC).isoformat()
            return JSONResponse({"success": True, "path": path, "size": len(data), "timestamp": now})
        limit = READ_LIMIT_BYTES if what == "read-file" else _MOST_BYTES
        content = await sandbox.box.read_answer(path, limit)
        if content == "oversized":
            return JSONResponse({"detail": "file is too large"}, 413)
        if isinstance(content, str):
            return JSONResponse({"detail": f"file is {content}"}, 404)
        if what == "download":
            return Response(content, media_type="application/octet-stream")
        return JSONResponse({"content": content.decode(errors="replace"), "size": len(content)})

    async def _command(self, scope: Any, receive: Any, send: Any, sandbox: Sandbox | None, rest: str) -> None:
        known = sandbox is not None and sandbox.sessions is not None and not sandbox.over
        if sandbox is not None and sandbox.misses:
            sandbox.misses, known = sandbox.misses - 1, False
        if not known or sandbox is None or sandbox.sessions is None:
            await _refuse(scope, send)
            return
        await sandbox.sessions.application({**scope, "path": f"/{rest}", "root_path": ""}, receive, send)


async def _refuse(scope: Any, send: Any) -> None:
    """Say NOT_FOUND as Connect does: in the end of a stream, or as the body of a call."""
    error = ConnectError(Code.NOT_FOUND, "sandbox not found")
    said = f'{{"code":"{error.code.value}","message":"{error.message}"}}'.encode()
    if route_name(scope["path"]) in _STREAMS:
        end = b'{"error":' + said + b"}"
        status, kind, body = 200, b"application/connect+proto", b"\x02" + len(end).to_bytes(4, "big") + end
    else:
        status, kind, body = 404, b"application/json", said
    await send_answer(send, status, kind, body)

"""A local server of release archives, which can also serve bad ones."""

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.opencode.fake_npm import tgz

PROGRAM = b"#!/bin/sh\necho 9.9.9\n"
GOOD = tgz({"opencode": PROGRAM})
STALLED = b"stalled"
DIGEST = hashlib.sha256(PROGRAM).hexdigest()


class Archives(ThreadingHTTPServer):
    """Serves one body after the other, the last one for ever; an empty one is a 503, and `STALLED` never comes."""

    def __init__(self, *bodies: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies = list(bodies)
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/opencode.tar.gz"


class _Handler(BaseHTTPRequestHandler):
    server: Archives

    def do_GET(self) -> None:
        body = self.server.bodies[min(self.server.asked, len(self.server.bodies) - 1)]
        self.server.asked += 1
        if not body:
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if body == STALLED:
            self.connection.recv(1)  # returns when the client gives up
            return
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""

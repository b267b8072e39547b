"""A real MCP server for the tests, from the `mcp` package: notes in memory, files of its directory, and bad manners.

`notes_server.py stdio`, or `notes_server.py http HOST PORT [BEARER]`.
"""

import os
import sys
import time
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

server = MCPServer("notes")
notes: list[str] = []


@server.tool()
def add_note(text: str) -> str:
    """Keep a note, and say how many there are."""
    notes.append(text)
    return f"{len(notes)} notes: {', '.join(notes)}"


@server.tool()
def read_data(name: str) -> str:
    """Read a file of the data directory (`NOTES_DATA`, else the working directory), and append a line to it."""
    path = Path(os.environ.get("NOTES_DATA", "."), name)
    content = path.read_text()
    path.write_text(content + "read before\n")
    return content


@server.tool()
def surroundings() -> str:
    """Say what this process can see of where it runs."""
    writable = os.access("/tmp", os.W_OK) or os.access(__file__, os.W_OK)
    return f"variables {sorted(os.environ)}; writable {writable}"


@server.tool()
def refuse() -> str:
    """Fail as a tool may fail."""
    raise ValueError("this tool refuses")


@server.tool()
def hang() -> str:
    """Do not answer."""
    time.sleep(600)
    return "too late"


@server.tool()
def die() -> str:
    """End the server in mid-call."""
    os._exit(3)


def serve_http(host: str, port: int, bearer: str | None) -> None:
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(transport_security=security)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", []))
        if (
            bearer is not None
            and scope["type"] == "http"
            and headers.get(b"authorization") != f"Bearer {bearer}".encode()
        ):
            await PlainTextResponse("who are you?", status_code=401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    uvicorn.run(guarded, host=host, port=port, log_level="critical")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        serve_http(sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None)

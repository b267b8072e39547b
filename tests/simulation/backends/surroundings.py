"""Files of tool backends, and real servers elsewhere: one behind a bearer, and an API that makes instances."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from aiohttp import web
from opencode_env.tool_backends import local as programs

from tests.support.forked import Forked
from tests.support.programs import running
from tests.support.served_app import served
from tests.support.user_home import closed_port
from tests.support.waiting import until

SERVER = Path(__file__).with_name("notes_server.py")
TOKEN = "the-token-of-the-server"


def write_file(path: Path, *backends: Mapping[str, Any], **rest: Any) -> Path:
    """A file with these backends; returns its path."""
    path.write_text(yaml.safe_dump({"backends": [dict(backend) for backend in backends], **rest}, sort_keys=False))
    return path


def directories_here() -> list[Path]:
    """The working directories of this process's backends: others on this machine have backends too."""
    prefix = Path(programs._prefix())
    return list(prefix.parent.glob(f"{prefix.name}*"))


def programs_here() -> list[str]:
    """Command lines of the notes servers that are programs of this process's backends."""
    mark, found = programs._prefix().encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if f"{SERVER.name} stdio" in line and mark in (place / "environ").read_bytes():
                found.append(line)
    return found


def program(name: str = "notes", **fields: Any) -> dict[str, Any]:
    """The notes server as a program."""
    command = [sys.executable, str(SERVER), "stdio"]
    return {"backend_name_ref": name, "orchestration_mode": "local_program", "command": command, **fields}


@contextlib.asynccontextmanager
async def notes_at(port: int, bearer: str | None = TOKEN) -> AsyncIterator[Forked]:
    """The notes server over HTTP in a process of its own."""

    def listening() -> bool:
        assert process.poll() is None
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{port}/nothing", timeout=5).status_code > 0
        return False

    with running(str(SERVER), "http", "127.0.0.1", str(port), *([bearer] if bearer else [])) as (process, _):
        await until(listening)
        yield process


@dataclass
class InstanceApi:
    """An API that makes instances, each a notes server of its own behind the token."""

    proxied: bool = False
    base_url: str = ""
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    """Method, path and body of each request."""
    alive: dict[str, contextlib.AsyncExitStack] = field(default_factory=dict)
    """What ends each instance, by its id."""
    break_creation: str | None = None
    """What a creation answers instead."""
    refused_deletions: int = 0
    """How many deletions are refused, with the header that they came with, before one is made."""
    silent: bool = False
    """Whether deletions are not answered."""
    _served: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> "InstanceApi":
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/make", self._make)
        app.router.add_post("/v1/made/{id}/call", self._call)
        app.router.add_delete("/v1/made/{id}", self._delete)
        self.base_url = await self._served.enter_async_context(served(app)) + "/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        for ends in self.alive.values():
            await ends.aclose()
        await self._served.aclose()

    @property
    def config(self) -> dict[str, Any]:
        """The API as a file describes it."""
        call = {"call_tool_endpoint_template": "/made/{remote_instance_id}/call"} if self.proxied else {}
        return {
            "base_url": self.base_url,
            "create_instance_endpoint": "/make",
            "delete_instance_endpoint_template": "/made/{remote_instance_id}",
            "auth_type": "custom_header",
            "auth_details": {"header_name": "Authorization", "header_value": f"Bearer {TOKEN}"},
            **call,
        }

    async def _note(self, request: web.Request) -> Any:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise web.HTTPUnauthorized(text="who are you?")
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path, body))
        return body

    async def _make(self, request: web.Request) -> web.Response:
        await self._note(request)
        if self.break_creation is not None:
            return web.Response(text=self.break_creation, content_type="application/json")
        port, name = closed_port(), f"made {len(self.alive)}"
        ends = contextlib.AsyncExitStack()
        await ends.enter_async_context(notes_at(port))
        self.alive[name] = ends
        made = {"remote_instance_id": name, "mcp_endpoint_url": f"http://127.0.0.1:{port}/mcp", "region": "here"}
        return web.json_response([made])

    async def _call(self, request: web.Request) -> web.Response:
        body = await self._note(request)
        assert request.match_info["id"] in self.alive
        if body["tool_name"] == "hang":
            await asyncio.sleep(600)
        if body["tool_name"] == "refuse":
            return web.Response(status=422, text="no such arguments")
        return web.json_response({"called": body["tool_name"], "with": body["arguments"]})

    async def _delete(self, request: web.Request) -> web.Response:
        await self._note(request)
        if self.silent:
            await asyncio.sleep(600)
        if self.refused_deletions:
            self.refused_deletions -= 1
            return web.Response(status=500, text=f"you sent {request.headers['Authorization']}")
        await self.alive.pop(request.match_info["id"]).aclose()
        return web.json_response({})


def instance(name: str = "notes", **fields: Any) -> dict[str, Any]:
    """An instance of the API `here`."""
    how = {"backend_type": "memory", "orchestration_mode": "remote_http_api", "remote_api_config_ref": "here"}
    return {"backend_name_ref": name, **how, "remote_resource_type_identifier": "notes_v1", **fields}


def said(result: Any) -> str:
    """The text of a tool result."""
    return "".join(part.text for part in result.content)


def in_container(image: str, transport: str, **fields: Any) -> dict[str, Any]:
    """The notes server in a container that sees this machine's Python."""
    how = ["stdio"] if transport == "stdio" else ["http", "0.0.0.0", "8000"]
    seen = {path: {"bind": path, "mode": "ro"} for path in sorted({sys.base_prefix, sys.prefix, str(SERVER.parent)})}
    return {
        "backend_name_ref": "notes",
        "backend_type": "filesystem",
        "orchestration_mode": "local_docker",
        "mcp_transport": transport,
        "docker_image": image,
        "container_port": None if transport == "stdio" else 8000,
        "container_command": [sys.executable, str(SERVER), *how],
        "container_volumes": seen,
        "docker_run_args": ["--env", "NOTES_DATA=/data"],
        "template_data_path_host": "template",
        **fields,
    }

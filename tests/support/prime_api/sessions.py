"""Command sessions of one sandbox: `command_session.CommandSession` of the SDK's own protocol, over Connect."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from connectrpc.code import Code
from connectrpc.compat import google_protobuf_binary_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo
from connectrpc.server import ConnectASGIApplication, Endpoint
from prime_sandboxes._proto.command_session import command_session_pb2
from verifiers.v1.errors import SandboxError

from tests.support.prime_api.box import Box, BoxProcess

pb: Any = command_session_pb2
_SERVICE = "command_session.CommandSession"
_START = 'echo $$; [ -z "$1" ] || cd -- "$1" || exit 1; shift; exec "$@"'
"""Says the process id that the command then has."""


class Session:
    """One process and those who watch it."""

    def __init__(self, process: BoxProcess, command: Any, pid: int, uuid: str) -> None:
        self.process = process
        self.command = command
        self.pid = pid
        self.uuid = uuid
        self.exit_code: int | None = None
        self.done: set[str] = set()
        """The uuids of inputs and signals that were applied."""
        self._watchers: set[asyncio.Queue[Any]] = set()
        self._pump: asyncio.Task[None] | None = None

    async def watch(self, response: type[Any]) -> AsyncIterator[Any]:
        """Its events from now on: its start again, and its end also when that was before."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._watchers.add(queue)
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        event = pb.CommandSessionEvent
        try:
            yield response(event=event(start=event.StartEvent(pid=self.pid)))
            while self.exit_code is None or not queue.empty():
                if (said := await queue.get()) is None:
                    break
                if isinstance(said, ConnectError):
                    raise said
                yield response(event=event(data=event.DataEvent(**said)))
            end = event.EndEvent(exit_code=self.exit_code or 0, exited=True, status="exited")
            yield response(event=event(end=end))
        finally:
            self._watchers.discard(queue)

    def _tell(self, said: Any) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(said)

    def drop(self) -> None:
        """Break every stream of it, as a network does."""
        self._tell(ConnectError(Code.UNAVAILABLE, "the test broke the stream"))

    async def _run(self) -> None:
        async def read(name: str, source: AsyncIterator[bytes]) -> None:
            async for chunk in source:
                self._tell({name: chunk})

        try:
            await asyncio.gather(read("stdout", self.process.stdout), read("stderr", self.process.stderr))
            code = await self.process.wait()
        except SandboxError:
            self._tell(ConnectError(Code.NOT_FOUND, "the sandbox is gone"))
            return
        self.exit_code = code if code >= 0 else 128 - code
        self._tell(None)

    async def close(self) -> None:
        """Let it go with its sandbox."""
        self._tell(ConnectError(Code.NOT_FOUND, "the sandbox is gone"))
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)


class Sessions:
    """The sessions of one sandbox, and the application that serves them; `env` is seen by every command."""

    def __init__(self, box: Box, env: Mapping[str, str]) -> None:
        self._box = box
        self._env = env
        self._all: list[Session] = []
        self._starting: dict[str, asyncio.Future[Session]] = {}
        self.application = _Application(self)

    @property
    def living(self) -> list[Session]:
        """Those whose process has not ended."""
        return [session for session in self._all if session.exit_code is None]

    async def start(self, request: Any, _: Any) -> AsyncIterator[Any]:
        """Run a command, or attach to the one with the same uuid."""
        uuid = request.session_uuid
        starting = self._starting.get(uuid) if uuid else None
        if starting is None:
            starting = asyncio.ensure_future(self._spawn(request.command, uuid))
            if uuid:
                self._starting[uuid] = starting
        session = await asyncio.shield(starting)
        if session.command != request.command:
            raise ConnectError(Code.FAILED_PRECONDITION, "another command has this session_uuid")
        async for event in session.watch(pb.StartResponse):
            yield event

    async def _spawn(self, command: Any, uuid: str) -> Session:
        if command.user:
            raise ConnectError(Code.INVALID_ARGUMENT, f"there is no user {command.user!r}")
        argv = ["sh", "-c", _START, "start", command.cwd, command.cmd, *command.args]
        process = await self._box.exec(argv, {**self._env, **command.envs})
        first = b""
        async for chunk in process.stdout:
            first += chunk
            if b"\n" in first:
                break
        pid, _, rest = first.partition(b"\n")
        session = Session(process, command, int(pid or 0), uuid)
        if rest:
            process.stdout = _Beginning(rest, process.stdout)
        self._all.append(session)
        return session

    async def connect(self, request: Any, _: Any) -> AsyncIterator[Any]:
        """Attach to a session."""
        async for event in self._selected(request).watch(pb.ConnectResponse):
            yield event

    def _selected(self, request: Any) -> Session:
        selector = request.session
        for session in self._all:
            if session.uuid == selector.session_uuid if selector.session_uuid else session.pid == selector.pid:
                return session
        raise ConnectError(Code.NOT_FOUND, "no such session")

    async def send_input(self, request: Any, _: Any) -> Any:
        """Write to a process, once for each uuid."""
        session = self._selected(request)
        if request.input_uuid not in session.done:
            session.done.add(request.input_uuid)
            with contextlib.suppress(BrokenPipeError):
                await session.process.write(request.input.stdin)
        return pb.SendInputResponse()

    async def send_signal(self, request: Any, _: Any) -> Any:
        """Signal the one process of a session, once for each uuid."""
        session = self._selected(request)
        if request.signal_uuid not in session.done and session.exit_code is None:
            session.done.add(request.signal_uuid)
            await self._box.run(["kill", f"-{request.signal}", str(session.pid)], {})
        return pb.SendSignalResponse()

    async def list(self, _: Any, __: Any) -> Any:
        """Say which processes live."""
        info = pb.CommandSessionInfo
        told = [info(command=one.command, pid=one.pid, session_uuid=one.uuid) for one in self.living]
        return pb.ListResponse(sessions=told)

    def drop_streams(self) -> None:
        """Break every stream."""
        for session in self._all:
            session.drop()

    async def close(self) -> None:
        """Let all go."""
        for session in self._all:
            await session.close()


class _Beginning(AsyncIterator[bytes]):
    """A stream with its beginning given back."""

    def __init__(self, beginning: bytes, rest: AsyncIterator[bytes]) -> None:
        self._beginning: bytes | None = beginning
        self._rest = rest

    async def __anext__(self) -> bytes:
        beginning, self._beginning = self._beginning, None
        return beginning if beginning is not None else await self._rest.__anext__()


class _Application(ConnectASGIApplication[Sessions]):
    """The sessions over HTTP."""

    path = f"/{_SERVICE}"

    def __init__(self, sessions: Sessions) -> None:
        codecs = [google_protobuf_binary_codec()]
        super().__init__(service=sessions, endpoints=_endpoints, compressions=(), codecs=codecs)


def _endpoints(sessions: Sessions) -> Mapping[str, Any]:
    def method(name: str) -> MethodInfo[Any, Any]:
        asked, told = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
        level = IdempotencyLevel.UNKNOWN
        return MethodInfo(name=name, service_name=_SERVICE, input=asked, output=told, idempotency_level=level)

    stream, call = Endpoint.server_stream, Endpoint.unary
    methods: dict[str, tuple[Any, Any]] = {
        "Start": (stream, sessions.start),
        "Connect": (stream, sessions.connect),
        "List": (call, sessions.list),
        "SendInput": (call, sessions.send_input),
        "SendSignal": (call, sessions.send_signal),
    }
    endpoints = methods.items()
    return {f"/{_SERVICE}/{name}": kind(method=method(name), function=found) for name, (kind, found) in endpoints}

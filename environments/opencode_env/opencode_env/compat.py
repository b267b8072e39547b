"""What is done to parts of other libraries that they have no hook for, and nowhere else in this package.

Each entry says which hook would end it, and of whose. `docs/reference/internals.md` lists them, with those of the other
distributions.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any, TypeVar

import httpx
from aiohttp import web
from pydantic import BaseModel
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.graph import MessageNode
from verifiers.v1.interception import server as verifiers_server
from verifiers.v1.serve.delta import DeltaStreamer
from verifiers.v1.trace import Trace

InstanceT = TypeVar("InstanceT")
ModelT = TypeVar("ModelT", bound=BaseModel)


def with_methods(instance: InstanceT, **methods: Callable[..., Any]) -> InstanceT:
    """Put these in place of the methods of one task.

    Hook (verifiers): `Agent.run(task, around=…)`, with a wrapper of the task's stages (`setup`, `finalize`, `score`).
    """
    vars(instance).update(methods)
    return instance


def with_mixin(instance: InstanceT, mixin: type, **members: Any) -> InstanceT:
    """Put the methods of a mixin, and these class attributes, before those of one object. It stays of its own type, and
    of that type's name: both are asked for.

    Hooks (verifiers): `Agent(harness_wrapper=…)`, called with the harness that a run is about to use; (renderers): a
    `ParsedResponse` that keeps malformed calls, which a client hands on.
    """
    own: Any = type(instance)
    instance.__class__ = _mixed(own, mixin, tuple(members.items()))
    return instance


@cache
def _mixed(own: type, mixin: type, members: tuple[tuple[str, Any], ...]) -> type[Any]:
    bases = (own,) if issubclass(own, mixin) else (mixin, own)
    return type(own.__name__, bases, {**dict(members), "__module__": own.__module__})


def share_state(view: object, of: object) -> None:
    """Let what is set on one of two objects be set on both.

    Hook (verifiers): `RolloutSession.rewrite_request` that returns at once where there are no hooks, no stops and no
    pinned results; or `InterceptionServer.register` that asks a method which session it shall keep.
    """
    view.__dict__ = of.__dict__


@contextmanager
def keepalive_after(seconds: float | None) -> Iterator[None]:
    """Let verifiers' servers keep the connection of a streamed call alive from `seconds` on; None: from when they do.

    Hook (verifiers): a field of `InterceptionServerConfig` in place of the constant `KEEPALIVE_GRACE_SECONDS`.
    """
    before = verifiers_server.KEEPALIVE_GRACE_SECONDS
    verifiers_server.KEEPALIVE_GRACE_SECONDS = before if seconds is None else seconds  # type: ignore[assignment]
    try:
        yield
    finally:
        verifiers_server.KEEPALIVE_GRACE_SECONDS = before


def response_of(reply: RelayReply) -> httpx.Response | None:
    """Return the response of which a streamed reply is made.

    Hook (verifiers): an attribute of `RelayReply` that says whether its end was framed.
    """
    response = getattr(reply.close, "__self__", None)
    return response if isinstance(response, httpx.Response) else None


def places_of(places: asyncio.Semaphore) -> int:
    """Return how many may run at once by a semaphore that nobody holds yet.

    Hook (verifiers): `Env.run_slot` that is told the evaluation's concurrency.
    """
    return places._value


def request_with(
    request: web.Request, body: bytes, headers: Mapping[str, str] | list[tuple[str, str]] | None = None
) -> web.Request:
    """Return a copy of a request with another body, and where they are given other headers.

    Hooks (aiohttp): a parameter `body` of `Request.clone`; (verifiers): `handle_request(request, dialect, body)`.
    """
    copied = request.clone() if headers is None else request.clone(headers=headers)
    copied._read_bytes = body
    return copied


Handler = Callable[[web.BaseRequest], Any]


def serve_through(server: web.Server, wrap: Callable[[Handler], Handler]) -> None:
    """Have every request of a running server go through another handler.

    Hook (verifiers): middlewares of the application that `InterceptionServer.start` makes.
    """
    server.request_handler = wrap(server.request_handler)


def end_idle_connections(server: web.Server, seconds: float) -> None:
    """Have a server close each connection that is made from now on once it has carried no request for so long.

    Hook (verifiers): options of the runner that `InterceptionServer.start` makes.
    """
    server._kwargs["keepalive_timeout"] = seconds


def replace_content(response: httpx.Response, content: bytes) -> None:
    """Put another body in place of one that was read.

    Hook (httpx): event hooks of a response that may return another.
    """
    response._content = content


def send_through(client: httpx.AsyncClient, transport: httpx.AsyncBaseTransport) -> None:
    """Have a client send through a transport, except to what the environment names a proxy for.

    Hook (httpx): `AsyncClient(transport=…)` that keeps the proxies of the environment.
    """
    client._transport = transport


def close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close a program's pipes, which asyncio does at the end of its output only: others can hold that open.

    Hook (Python): a method `close` of `asyncio.subprocess.Process`.
    """
    process._transport.close()  # type: ignore[attr-defined]


def _in_python(factory: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: factory()  # noqa: PLW0108 - a Python function is what is wanted


for _field in MessageNode.model_fields.values():
    # pydantic reads the signature of a default factory anew for each node that is made, and a builtin's by parsing its
    # text beside a copy of sys.modules: a fifth of a call's CPU.
    # Hooks (pydantic): `FieldInfo.default_factory_takes_validated_data` that keeps what it found, as that of private
    # attributes does; (verifiers): default factories of `MessageNode` that are functions.
    if _field.default_factory is not None and not isinstance(_field.default_factory, FunctionType):
        _field.default_factory = _in_python(_field.default_factory)


def take_fields(trace: ModelT, newer: ModelT, names: Iterable[str]) -> None:
    """Give a model these fields of another of its type, as far as it has them.

    Hook (verifiers): an `EpisodeAssembly` whose traces are `Trace`s that can be watched.
    """
    for name in type(trace).model_fields.keys() & {*names}:
        setattr(trace, name, getattr(newer, name))


def begin_no_cluster(ray: Any) -> None:
    """Have calls of Ray's fail where this process has joined no cluster; else each would begin one of its own.

    Hook (Ray): an argument of `ray.init` for `RAY_ENABLE_AUTO_CONNECT`, which Ray reads when it is imported.
    """
    ray._private.auto_init_hook.enable_auto_connect = False


def join_ray(ray: Any, address: str) -> None:
    """Join a Ray cluster, whose workers get a node's own Python and of this process's path what is in it.

    Ray would have them run `uv run` in a copy of this directory where that started the driver, and look for every
    module in this directory first.

    Hook (Ray): an argument of `ray.init` for each.
    """
    ray._private.ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = False
    job = ray.job_config.JobConfig()
    searched = {os.path.realpath(place) for place in sys.path}
    here = [os.path.realpath(place) for place in (os.path.dirname(sys.argv[0]), os.curdir)]
    job._py_driver_sys_path = [place for place in here if place in searched]
    job._runtime_env_has_working_dir = lambda: True
    ray.init(address=address, job_config=job, log_to_driver=False, configure_logging=False)


def draining_nodes(ray: Any) -> set[str]:
    """Return the ids of the nodes that Ray is to give back; empty where its head does not answer.

    Hook (Ray): a state in `ray.nodes()`, or `list_nodes` without a dashboard.
    """
    try:
        return {*ray._private.state.state.get_draining_nodes()}
    except Exception:  # noqa: BLE001 - what is lost is told by whoever plays there
        return set()


async def send_again(trace: Trace[Any, Any, Any]) -> None:
    """Have an environment server that streams a trace as it grows send all of it once more, as it is now; it sends a
    node only once.

    Hook (verifiers): a delta for the mask of an earlier node.
    """
    streamer = getattr(trace._on_change, "__self__", None)
    if isinstance(streamer, DeltaStreamer):
        async with streamer._lock:
            await streamer.send({"trace": trace.id, "discard": True})
            streamer.cursors = {name: sent for name, sent in streamer.cursors.items() if name != trace.id}

"""The platform's own routes: sandboxes asked for, looked at, listed and deleted."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.prime_api.sandboxes import Sandbox, Sandboxes

_PREFIX = "/api/v1/sandbox"
_NAMES = {"": {"POST": "create", "GET": "list", "DELETE": "bulk_delete"}, "/status:batchGet": {"POST": "statuses"}}
_NAMES_BELOW = {
    "": {"GET": "get", "DELETE": "delete"},
    "auth": {"POST": "auth"},
    "error-context": {"GET": "error_context"},
    "egress-policy": {"GET": "get_network", "PUT": "set_network"},
}
_MOST_STATUSES = 100

Handler = Callable[[Request], Awaitable[Response]]


def route_name(method: str, path: str) -> str:
    """What a request to the platform is called."""
    rest = path.removeprefix(_PREFIX)
    if rest in _NAMES:
        return _NAMES[rest].get(method, "unknown")
    return _NAMES_BELOW.get(rest[1:].partition("/")[2], {}).get(method, "unknown")


def _missing() -> JSONResponse:
    return JSONResponse({"detail": "Sandbox not found"}, 404)


class Control:
    """Answers for one server's sandboxes.

    Args:
        sandboxes: whose.
        key: the API key that is let in.
        teams: those that its owner is a member of.
        gateway: the URL that sandboxes are reached through.
    """

    def __init__(self, sandboxes: Sandboxes, key: str, gateway: Callable[[], str], teams: Collection[str] = ()) -> None:
        self._sandboxes = sandboxes
        self._key = key
        self._teams = teams
        self._gateway = gateway
        one = f"{_PREFIX}/{{id}}"
        self.application = Starlette(
            routes=[
                self._route("POST", _PREFIX, self._create),
                self._route("GET", _PREFIX, self._list),
                self._route("DELETE", _PREFIX, self._bulk_delete),
                self._route("POST", f"{_PREFIX}/status:batchGet", self._statuses),
                self._route("GET", one, self._one(lambda sandbox: sandbox.record())),
                self._route("DELETE", one, self._delete),
                self._route("POST", f"{one}/auth", self._one(lambda sandbox: sandbox.auth(self._gateway()))),
                self._route("GET", f"{one}/error-context", self._one(_error_context)),
                self._route("GET", f"{one}/egress-policy", self._one(_policy)),
                self._route("PUT", f"{one}/egress-policy", self._set_policy),
            ]
        )

    def _route(self, method: str, path: str, handler: Handler) -> Route:
        async def admitted(request: Request) -> Response:
            if request.headers.get("authorization") != f"Bearer {self._key}":
                return JSONResponse({"detail": "Invalid API key"}, 401)
            return await handler(request)

        return Route(path, admitted, methods=[method])

    def _found(self, request: Request) -> Sandbox | None:
        return self._sandboxes.all.get(request.path_params["id"])

    def _one(self, said: Callable[[Sandbox], dict[str, Any]]) -> Handler:
        async def handler(request: Request) -> Response:
            sandbox = self._found(request)
            return _missing() if sandbox is None else JSONResponse(said(sandbox))

        return handler

    async def _create(self, request: Request) -> Response:
        asked = await request.json()
        idle, lifetime = asked.get("idle_timeout_minutes"), asked.get("timeout_minutes", 60)
        if idle is not None and 0 < lifetime < idle:
            return JSONResponse({"detail": "idle_timeout_minutes exceeds timeout_minutes"}, 422)
        if asked.get("team_id") not in (None, *self._teams):
            return JSONResponse({"detail": "Not a member of this team"}, 403)
        sandbox = await self._sandboxes.create(asked)
        return JSONResponse({**sandbox.record(), "gatewayAuth": sandbox.auth(self._gateway())})

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        labels, page, per_page = query.getlist("labels"), int(query.get("page", 1)), int(query.get("per_page", 50))
        found = [
            sandbox
            for sandbox in reversed(self._sandboxes.all.values())
            if set(labels) <= set(sandbox.labels)
            and sandbox.request.get("team_id") == query.get("team_id")
            and query.get("status") in (None, sandbox.status)
            and not (query.get("is_active") == "true" and sandbox.over)
        ]
        shown = found[(page - 1) * per_page : page * per_page]
        paging = {"total": len(found), "page": page, "perPage": per_page, "hasNext": page * per_page < len(found)}
        return JSONResponse({"sandboxes": [sandbox.record() for sandbox in shown], **paging})

    async def _statuses(self, request: Request) -> Response:
        ids = (await request.json())["sandbox_ids"]
        if not 0 < len(ids) <= _MOST_STATUSES:
            return JSONResponse({"detail": f"1 to {_MOST_STATUSES} ids"}, 422)
        known = self._sandboxes.all
        told = [_snapshot(known[one]) for one in ids if one in known]
        unknown = [{"sandbox_id": one, "code": "NOT_FOUND", "message": "unknown"} for one in ids if one not in known]
        return JSONResponse({"statuses": told, "errors": unknown})

    async def _delete(self, request: Request) -> Response:
        sandbox = self._found(request)
        if sandbox is None or sandbox.status == "TERMINATED":
            return _missing()
        await self._sandboxes.end(sandbox)
        sandbox.status = "TERMINATED"  # also what ended in an error before
        return JSONResponse({"id": sandbox.id, "status": sandbox.status})

    async def _bulk_delete(self, request: Request) -> Response:
        asked = await request.json()
        ids, labels = asked.get("sandbox_ids"), asked.get("labels")
        known = self._sandboxes.all
        if ids is None:
            ids = [one.id for one in known.values() if labels and {*labels} <= {*one.labels} and not one.over]
        succeeded = [one for one in ids if one in known]
        failed = [{"sandbox_id": one, "error": "Sandbox not found"} for one in ids if one not in known]
        for one in succeeded:
            await self._sandboxes.end(known[one])
        return JSONResponse({"succeeded": succeeded, "failed": failed, "message": f"{len(succeeded)} deleted"})

    async def _set_policy(self, request: Request) -> Response:
        sandbox = self._found(request)
        if sandbox is None:
            return _missing()
        sandbox.policy = await request.json()
        return JSONResponse(_policy(sandbox))


def _snapshot(sandbox: Sandbox) -> dict[str, Any]:
    record = sandbox.record()
    return {
        "sandbox_id": sandbox.id,
        "status": sandbox.status,
        "error_type": record["errorType"],
        "error_message": record["errorMessage"],
        "pending_image_build_id": record["pendingImageBuildId"],
    }


def _error_context(sandbox: Sandbox) -> dict[str, Any]:
    return {key: sandbox.record()[key] for key in ("status", "errorType", "errorMessage")}


def _policy(sandbox: Sandbox) -> dict[str, Any]:
    return {"policy": sandbox.policy, "generation": 1, "applied_generation": 1, "applied": True}

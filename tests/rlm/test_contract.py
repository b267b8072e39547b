"""The private parts of verifiers that the role interception stands on, pinned: a failure names what a version broke."""

import inspect
from importlib.metadata import version

import pytest
from verifiers.v1.env import Env
from verifiers.v1.interception import server as server_module
from verifiers.v1.interception.pool import ElasticInterceptionPool
from verifiers.v1.interception.server import InterceptionServer
from verifiers.v1.session import RolloutSession

WHERE = f"verifiers {version('verifiers')} changed what opencode_env.cli_agent.interception builds on"


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (InterceptionServer, "_handler_for", ["self", "dialect"]),
        (InterceptionServer, "_aux_handler_for", ["self", "dialect", "route"]),
        (InterceptionServer, "register", ["self", "session"]),
        (InterceptionServer, "unregister", ["self", "model_secret", "state_secret"]),
        (InterceptionServer, "acquire", ["self", "session"]),
        (ElasticInterceptionPool, "_server", ["self"]),
        (ElasticInterceptionPool, "acquire", ["self", "session"]),
        (Env, "_requires_tunnel", ["self", "shared"]),
        (Env, "shared_tools", ["self"]),
        (RolloutSession, "refused", ["self"]),
        (RolloutSession, "rewrite_request", ["self", "request", "run_stops"]),
        (RolloutSession, "release", ["self"]),
    ],
)
def test_a_method_that_is_overridden_or_called_has_the_same_parameters(
    owner: type, name: str, parameters: list[str]
) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters, f"{WHERE}: {owner.__name__}.{name}"


def test_a_new_server_has_the_attributes_that_are_used() -> None:
    server = InterceptionServer()
    for name in ("sessions", "clients", "stack", "load"):
        assert hasattr(server, name), f"{WHERE}: InterceptionServer.{name}"


def test_the_serving_of_an_environment_is_the_one_that_serving_by_role_repeats() -> None:
    source = inspect.getsource(Env.serving)
    steps = ["self.shared_tools()", "make_interception(", "self._requires_tunnel(shared)", "async with interception"]
    steps += ["self._shared_tools = shared", "self._interception = interception", "await self.start()", "yield"]
    steps += ["await self.stop()", "self._shared_tools = {}", "self._interception = None"]
    positions = [source.find(step) for step in steps]
    assert -1 not in positions, f"{WHERE}: Env.serving"
    assert positions == sorted(positions), f"{WHERE}: the order of Env.serving"


def test_a_request_is_served_by_the_session_of_its_bearer_and_recorded_by_record_call() -> None:
    source = inspect.getsource(server_module.InterceptionServer.handle_request)
    for needed in (
        "self.sessions.get(dialect.secret(request.headers))",
        "await session.refused()",
        "await session.rewrite_request(",
        "except RolloutError as error:\n            return self._fail(session, dialect, error)",
        "self.record_call(",
    ):
        assert needed in source, f"{WHERE}: handle_request has no {needed!r}"

"""What of verifiers the packages stand on, in one list: every import, every overridden method, every private part.

A failure names the version of verifiers and the symbol that it changed.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version

import pytest
from opencode_rubrics.verifiers_versions import AFTER_0_4_0
from verifiers.v1.agent import Agent
from verifiers.v1.env import Env
from verifiers.v1.harness import HarnessSession
from verifiers.v1.interception import server as server_module
from verifiers.v1.interception.pool import ElasticInterceptionPool, StaticInterceptionPool
from verifiers.v1.interception.server import InterceptionServer
from verifiers.v1.runtimes.base import BaseRuntimeInfo
from verifiers.v1.session import RolloutSession

from tests.test_structure import sources

VERIFIERS = f"verifiers {version('verifiers')}"

OVERRIDDEN = {
    "clients.client.Client.close": "self",
    "clients.client.Client.get_response": "self dialect body sampling session_id turn headers",
    "clients.client.Client.relay": "self dialect body session_id headers",
    "clients.client.Client.relay_aux": "self dialect route body headers",
    "dialects.base.Dialect.parse_request": "self body",
    "env.Env.finalize": "self task episode",
    "env.Env.run": "self task agents",
    "env.Env.serving": "self",
    "env.Env.setup": "self agents",
    "env.Env.start": "self",
    "env.Env.stop": "self",
    "harness.Harness._check_result": "self trace runtime result",
    "harness.Harness.cleanup": "self trace runtime",
    "harness.Harness.launch": "self ctx trace runtime endpoint secret mcp_urls data",
    "harness.Harness.score": "self trace runtime",
    "harness.Harness.session": "self ctx trace runtime endpoint secret mcp_urls data tool_interception_url",
    "harness.Harness.setup": "self runtime",
    "harness.HarnessSession.close": "self",
    "harness.HarnessSession.steer": "self message message_id",
    "harness.HarnessSession.turn": "self messages",
    "interception.pool.ElasticInterceptionPool._server": "self",
    "interception.pool.ElasticInterceptionPool.acquire": "self session",
    "interception.server.InterceptionServer._aux_handler_for": "self dialect route",
    "interception.server.InterceptionServer._client": "self config",
    "interception.server.InterceptionServer._handler_for": "self dialect",
    "interception.server.InterceptionServer._session_for": "self request allow_service",
    "interception.server.InterceptionServer.acquire": "self session",
    "interception.server.InterceptionServer.handle_models": "self request",
    "interception.server.InterceptionServer.handle_tool": "self request",
    "interception.server.InterceptionServer.record_call": (
        "self session dialect request started node finish_reason usage error policy_paths acp"
    ),
    "interception.server.InterceptionServer.register": "self session",
    "interception.server.InterceptionServer.start": "self",
    "interception.server.InterceptionServer.unregister": "self model_secret state_secret",
    "judge.Judge.complete": "self messages trace schema parse sampling",
    "runtimes.base.Runtime._read": "self path max_bytes",
    "runtimes.base.Runtime.cleanup": "self",
    "runtimes.base.Runtime.expose": "self port",
    "runtimes.base.Runtime.host_url": "self url",
    "runtimes.base.Runtime.open_process": "self argv env",
    "runtimes.base.Runtime.prepare_uv_script": "self script env activate",
    "runtimes.base.Runtime.run": "self argv env",
    "runtimes.base.Runtime.run_background": "self argv env log",
    "runtimes.base.Runtime.run_program": "self argv env",
    "runtimes.base.Runtime.start": "self",
    "runtimes.base.Runtime.teardown": "self",
    "runtimes.base.Runtime.write": "self path data",
    "runtimes.base.RuntimeProcess.kill": "self",
    "runtimes.base.RuntimeProcess.poll": "self",
    "runtimes.base.RuntimeProcess.terminate": "self",
    "runtimes.base.RuntimeProcess.wait": "self",
    "runtimes.base.RuntimeProcess.write": "self data",
    "runtimes.subprocess.SubprocessRuntime.cleanup": "self",
    "runtimes.subprocess.SubprocessRuntime.open_process": "self argv env",
    "runtimes.subprocess.SubprocessRuntime.run": "self argv env",
    "runtimes.subprocess.SubprocessRuntime.start": "self",
    "runtimes.subprocess.SubprocessRuntime.teardown": "self",
    "session.RolloutSession.refused": "self",
    "session.RolloutSession.rewrite_request": "self request run_stops",
    "task.Task.finalize": "self trace runtime",
    "task.Task.score": "self trace runtime",
    "task.Task.setup": "self trace runtime",
    "taskset.Taskset.load": "self",
}
"""Methods of verifiers that a class of ours overrides, with the names of their parameters."""

CALLED = {
    "env.Env._requires_tunnel": "self shared",
    "env.Env.shared_tools": "self",
    "dialects.base.Dialect.mediate_external_capabilities": "self body policy",
    "session.RolloutSession.adopt": "self task",
    "session.RolloutSession.release": "self",
    "harness.Harness.install_skills": "self runtime dest",
    "agent.Agent.provision": "self task",
    "agent.Agent.run": "self task runtime tools on_trace collect_artifacts",
}
"""Methods that are called although they are private, or with a meaning beyond their documentation."""

ATTRIBUTES = {
    Env: ("self._shared_tools", "self._interception"),
    Agent: ("self.harness", "self.runtime_config"),
    HarnessSession: ("self._closed",),
    StaticInterceptionPool: ("self.servers",),
    ElasticInterceptionPool: ("self.servers", "self.stack"),
}
"""Attributes that are read or set from outside, as the class's own source names them."""


def resolve(path: str) -> object:
    """The object at a dotted path below `verifiers.v1`."""
    module, owner, name = path.rsplit(".", 2)
    return getattr(getattr(importlib.import_module(f"verifiers.v1.{module}"), owner), name)


class InUse(ast.NodeTransformer):
    """Leaves of `if AFTER_0_4_0` only the branch of the installed version."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Name) or node.test.id != "AFTER_0_4_0":
            return node
        return node.body if AFTER_0_4_0 else node.orelse


@cache
def imported() -> list[tuple[str, str]]:
    """Every (module, name) that the packages import from verifiers."""
    trees = (InUse().visit(ast.parse(path.read_text())) for path in sources().values())
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return sorted({(str(n.module), a.name) for n in nodes if str(n.module).startswith("verifiers") for a in n.names})


@pytest.mark.parametrize(("module", "name"), imported())
def test_what_is_imported_is_there(module: str, name: str) -> None:
    found = importlib.import_module(module)
    assert hasattr(found, name) or importlib.import_module(f"{module}.{name}"), f"{VERIFIERS} has no {module}.{name}"


@pytest.mark.parametrize("path", sorted(OVERRIDDEN | CALLED))
def test_a_method_that_is_overridden_or_called_has_the_same_parameters(path: str) -> None:
    parameters = " ".join(inspect.signature(resolve(path)).parameters)  # type: ignore[arg-type]
    assert parameters == (OVERRIDDEN | CALLED)[path], f"{VERIFIERS} changed {path}"


def overrides() -> Iterator[str]:
    """Every method of verifiers that a class of the packages overrides."""
    for module in sources():
        if module.endswith("__main__") or {"mathverdict", "supervisor"} & set(module.split(".")):
            continue
        for owner in vars(importlib.import_module(module)).values():
            if not isinstance(owner, type) or owner.__module__ != module:
                continue
            for name, member in vars(owner).items():
                if not inspect.isfunction(member) or name.startswith("__") or name == "model_post_init":
                    continue
                base = next((base for base in owner.__mro__[1:] if inspect.isfunction(vars(base).get(name))), object)
                if base.__module__.startswith("verifiers.v1."):
                    yield f"{base.__module__.removeprefix('verifiers.v1.')}.{base.__name__}.{name}"


def test_the_list_of_overridden_methods_is_complete_and_holds_nothing_else() -> None:
    assert set(overrides()) == set(OVERRIDDEN)


@pytest.mark.parametrize(("owner", "names"), ATTRIBUTES.items())
def test_an_attribute_that_is_used_from_outside_is_there(owner: type, names: tuple[str, ...]) -> None:
    source = inspect.getsource(owner)
    assert [name for name in names if f"{name}" not in source] == [], f"{VERIFIERS} changed {owner.__name__}"


def test_a_lent_box_is_stamped_on_its_information() -> None:
    assert "borrowed" in BaseRuntimeInfo.model_fields, f"{VERIFIERS} changed BaseRuntimeInfo.borrowed"


def test_a_session_of_a_rollout_knows_when_it_was_released() -> None:
    assert "released" in inspect.signature(RolloutSession).parameters, f"{VERIFIERS} changed RolloutSession.released"


def test_a_new_server_has_the_attributes_that_are_used() -> None:
    server = InterceptionServer()
    for name in ("sessions", "clients", "stack", "load", "runner"):
        assert hasattr(server, name), f"{VERIFIERS}: InterceptionServer.{name}"


def test_the_serving_of_an_environment_is_the_one_that_serving_by_role_repeats() -> None:
    source = inspect.getsource(Env.serving)
    steps = ["self.shared_tools()", "make_interception(", "self._requires_tunnel(shared)", "async with interception"]
    steps += ["self._shared_tools = shared", "self._interception = interception", "await self.start()", "yield"]
    steps += ["await self.stop()", "self._shared_tools = {}", "self._interception = None"]
    positions = [source.find(step) for step in steps]
    assert -1 not in positions, f"{VERIFIERS}: Env.serving"
    assert positions == sorted(positions), f"{VERIFIERS}: the order of Env.serving"


def test_a_request_is_served_by_the_session_of_its_bearer_and_recorded_by_record_call() -> None:
    source = inspect.getsource(server_module.InterceptionServer.handle_request)
    for needed in (
        "self.sessions.get(dialect.secret(request.headers))",
        "await session.refused()",
        "await session.rewrite_request(",
        "except RolloutError as error:\n            return self._fail(session, dialect, error)",
        "self.record_call(",
        "raw = await request.read()",
        "request._read_bytes = None",
        "model_request = dialect.parse_request(body)\n        except ValueError as error:",
    ):
        assert needed in source, f"{VERIFIERS}: handle_request has no {needed!r}"

"""What of verifiers the packages stand on, in one list: every import, every overridden method, every private part.

A failure names the version of verifiers and the symbol that it changed. So that none can stay unseen, nothing of
verifiers is imported before a test runs.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from types import FunctionType
from typing import Any

import pytest
from packaging.version import Version

from tests.test_structure import sources

VERIFIERS = f"verifiers {version('verifiers')}"
AFTER_0_4_0 = Version(version("verifiers")) > Version("0.4.0")
"""As in `rollout_sandbox.compat`, which may be what cannot be imported."""


def by_path(members: Mapping[str, str]) -> dict[str, str | None]:
    """The parameters of each method by its dotted path, and None by that of each attribute."""
    return {
        f"{owner}.{name}": parameters if brackets else None
        for owner, listed in members.items()
        for name, brackets, parameters in re.findall(r"(\w+)(\(([^)]*)\))?(?:, |$)", listed)
    }


OVERRIDDEN = by_path(
    {
        "clients.client.Client": (
            "close(self), get_response(self dialect body sampling session_id turn headers), "
            "relay(self dialect body session_id headers), relay_aux(self dialect route body headers)"
        ),
        "clients.eval.EvalClient": "_headers(self dialect incoming session_id), _request(self url body headers stream)",
        "configs.env.SharedEnvConfig": "retries",
        "configs.harness.HarnessConfig": "disabled_tools",
        "configs.runtime.NetworkPolicyConfig": "allow, block",
        "configs.taskset.SharedTasksetConfig": "task",
        "dialects.base.Dialect": (
            "apply_overrides(self body model sampling), parse_request(self body), stream_parser(self), "
            "validate_response(self raw)"
        ),
        "dialects.base.StreamParser": "feed, finish(self)",
        "dialects.chat.ChatDialect": "rewrite_request(self body before after)",
        "dialects.chat.ChatStreamParser": "feed(self raw), finish(self)",
        "env.Env": (
            "complete(self episode), finalize(self task episode), run(self task agents), "
            "run_episode(self task ctx on_trace on_discard), "
            "run_slot(self slot ctx semaphore on_complete on_trace), serving(self), "
            "setup(self agents), slots(self task n), start(self), stop(self)"
        ),
        "harness.Harness": (
            "APPENDS_SYSTEM_PROMPT, EXECUTES_CODE, NEEDS_CONTAINER, SUPPORTS_MCP, SUPPORTS_RESUME, SUPPORTS_SKILLS, "
            "_check_result(self trace runtime result), cleanup(self trace runtime), "
            "launch(self ctx trace runtime endpoint secret mcp_urls data), score(self trace runtime), "
            "session(self ctx trace runtime endpoint secret mcp_urls data tool_interception_url), setup(self runtime)"
        ),
        "harness.HarnessSession": "close(self), steer(self message message_id), turn(self messages)",
        "interception.pool.ElasticInterceptionPool": "_server(self), acquire(self session)",
        "interception.pool.StaticInterceptionPool": "acquire(self session)",
        "interception.server.InterceptionServer": (
            "load, _aux_handler_for(self dialect route), _client(self config), _handler_for(self dialect), "
            "acquire(self session), handle_models(self request), handle_request(self request dialect), "
            "handle_task_get(self request), handle_tool(self request), "
            "record_call(self session dialect request started node finish_reason usage error policy_paths acp), "
            "register(self session), start(self), unregister(self model_secret state_secret)"
        ),
        "judge.Judge": "complete(self messages trace schema parse sampling)",
        "mcp.server.ServerBase": "server_name, run(), setup(self), setup_task(self task)",
        "mcp.toolset.Toolset": "register(self mcp)",
        "runtimes.base.RuntimeProcess": "kill(self), poll(self), terminate(self), wait(self), write(self data)",
        "session.RolloutSession": "refused(self)",
        "task.Task": (
            "key, finalize(self trace runtime), runtime_env(self), setup(self trace runtime), toolsets(config), "
            "validate(self runtime)"
        ),
        "taskset.Taskset": "load(self), toolsets(config)",
    }
)
"""What our classes override, by the class of verifiers: its attributes, and its methods with their parameters."""

OVERRIDDEN |= by_path(
    {
        "configs.runtime.CustomRuntimeConfig": "import_path",
        "configs.runtime.PrimeConfig": "type",
        "runtimes.backends.prime.PrimeBackend": (
            "cleanup(self), exec(self runtime argv env), prepare_execution(self routes network), "
            "read(self runtime path max_bytes), run(self runtime argv env), run_background(self runtime argv env log), "
            "start(self), teardown(self), write(self runtime path data)"
        ),
        "runtimes.backends.subprocess.SubprocessBackend": "cleanup(self), start(self), teardown(self)",
        "runtimes.base.RuntimeBackend": (
            "SUPPORTS_PORT_EXPOSURE, SUPPORTS_TASK_IMAGES, SUPPORTS_USER_SWITCHING, is_local, bind(self env), "
            "cleanup(self), exec(self runtime argv env), expose(self port), host_url(self url), "
            "prepare_execution(self routes network), read(self runtime path max_bytes), run(self runtime argv env), "
            "run_background(self runtime argv env log), start(self), teardown(self), write(self runtime path data)"
        ),
        "runtimes.runtime.Runtime": (
            "backend, alive(self), exec(self argv env), prepare_uv_script(self script env activate), run(self argv env)"
        ),
        "session.RolloutSession": "rewrite_request(self request run_stops dialect)",
        "task.Task": "score(self trace runtime deployment)",
    }
    if AFTER_0_4_0
    else {
        "runtimes.base.Runtime": (
            "info, network_restricted, supports_user, _read(self path max_bytes), alive(self), expose(self port), "
            "host_url(self url), open_process(self argv env), prepare_execution(self routes), "
            "prepare_uv_script(self script env activate), run(self argv env), run_background(self argv env log), "
            "start(self), stop(self), with_env(self env), with_user(self user home), write(self path data)"
        ),
        "runtimes.prime.PrimeConfig": "type",
        "runtimes.prime.PrimeRuntime": "run(self argv env)",
        "session.RolloutSession": "rewrite_request(self request run_stops)",
        "task.Task": "score(self trace runtime)",
    }
)

CALLED = {
    "env.Env._requires_tunnel": "self shared",
    "env.Env.shared_tools": "self",
    "dialects.base.Dialect.mediate_external_capabilities": "self body policy",
    "mcp.server.ServerBase._state_channel": "self",
    "session.RolloutSession.adopt": "self task",
    "session.RolloutSession.release": "self",
    "harness.Harness.install_skills": "self runtime dest",
    "clients.train.ElasticRendererPool.__init__": "self renderer_model config chat_template_kwargs multiplex",
    "clients.train.ElasticRendererPool.acquire": "self",
    "clients.train.RendererSlot.run": "self fn",
    "agent.Agent.provision": "self task",
    "runtimes.limiters.creation_limiter": "per_sec name scope",
    "agent.Agent.run": "self task runtime tools on_trace collect_artifacts" + (" on_score" if AFTER_0_4_0 else ""),
}
"""Methods that are called although they are private, or with a meaning beyond their documentation."""

METHODS = {path: parameters for path, parameters in (OVERRIDDEN | CALLED).items() if parameters is not None}

SAID = {
    "runtimes.backends.prime.PrimeBackend" if AFTER_0_4_0 else "runtimes.prime.PrimeRuntime": (
        "self._client",
        "client, self._client = self._client, None",
        '"timeout_minutes": -1',
        "(self.config.creates_per_min or 0) / 60",
        '"prime-sandbox"',
    ),
    "interception.server.InterceptionServer": (
        "self.tunnel.bind_host, self.tunnel.bind_port",
        "self.tunnel.expose(self.port)",
        "yield self.base_url, ",
    ),
    "interception.server._buffered_stream": ("timeout=KEEPALIVE_GRACE_SECONDS",),
    # A training client builds its renderer from what its start is judged by.
    "clients.train.TrainClient.get_response": (
        "ElasticRendererPool(",
        "self.config.renderer_model_name or model,",
        "self.config.renderer,",
        'sampling_params.pop("chat_template_kwargs", None)',
        "chat_template_kwargs=chat_template_kwargs,",
        '"supports_process_multimodal"',
    ),
    # A request is served by the session of its bearer, and recorded by `record_call`.
    "interception.server.InterceptionServer.handle_request": (
        "self.sessions.get(dialect.secret(request.headers))",
        "await session.refused()",
        "await session.rewrite_request(",
        "except RolloutError as error:\n            return self._fail(session, dialect, error)",
        "self.record_call(",
        "raw = await request.read()",
        "body = from_json(raw)\n",
        "body = dialect.apply_overrides(body, session.ctx.model, session.ctx.sampling)\n        streaming =",
        "req_hash = await _request_digest(raw)\n",
        "request._read_bytes = None",
        "model_request = dialect.parse_request(body)\n        except ValueError as error:",
    ),
    # An answer is what the last parser of its dialect says.
    "interception.server._collect_stream": (
        *("parser = dialect.stream_parser()", "parser.feed(chunk)", "return parser.finish(), bytes(events)"),
    ),
    # A request is rewritten by hooks and kept results only.
    "session.RolloutSession.rewrite_request": (
        """
        request = self.pin_tool_results(request)
        tool_keys = self.tool_result_keys(request)
        if not self.request_interceptors and (not run_stops or not self.request_stops):
            return request, [], None
""",
    ),
    "session.RolloutSession.pin_tool_results": (
        "pinned = self.pinned_tool_results.get(key)\n            if pinned is None:\n                continue",
    ),
}
"""What the source of a class or function says where nothing that it makes shows it, and what ours repeat."""

PROGRAMS = ("verdict_programs", "supervisor", "call_function")
"""Packages and modules of ours that run in the sandbox and know nothing of verifiers."""


def found(path: str) -> object:
    """The object at a dotted path; the test fails with version and path when there is none."""
    here: object = None
    parts = path.split(".")
    for length, name in enumerate(parts, 1):
        inside = getattr(here, name, None)
        if inside is None and (here is None or inspect.ismodule(here)):
            try:
                inside = importlib.import_module(".".join(parts[:length]))
            except ImportError as error:
                pytest.fail(f"{VERIFIERS} has no {path}: {error}")
        if inside is None:
            pytest.fail(f"{VERIFIERS} has no {path}")
        here = inside
    return here


def resolve(path: str) -> object:
    """The object at a dotted path below `verifiers.v1`."""
    return found(f"verifiers.v1.{path}")


class InUse(ast.NodeTransformer):
    """Leaves of `if AFTER_0_4_0` only the branch of the installed version."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Name) or node.test.id != "AFTER_0_4_0":
            return node
        return node.body if AFTER_0_4_0 else node.orelse


def of_verifiers(tree: ast.AST) -> Iterator[str]:
    """The dotted path of all that a module imports from verifiers, and of what it takes from an imported module."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            paths = {alias.asname or alias.name: origin + alias.name for alias in node.names}
            modules |= {name: path for name, path in paths.items() if path.split(".")[0] == "verifiers"}
    yield from modules.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


def used() -> list[str]:
    """The dotted path of everything that the packages name of verifiers."""
    trees = (InUse().visit(ast.parse(source.read_text())) for source in sources().values())
    return sorted({path for tree in trees for path in of_verifiers(tree)})


@cache
def importable() -> list[str]:
    """The packages' modules that are not programs."""
    modules = ((module, set(module.split("."))) for module in sorted(sources()))
    return [name for name, parts in modules if not {"__main__", *PROGRAMS} & parts and ".programs." not in name]


@pytest.mark.parametrize("module", importable())
def test_a_module_of_ours_can_be_imported(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        pytest.fail(f"{VERIFIERS}: {module} cannot be imported: {error}")


def test_what_is_used_is_there() -> None:
    missing = []
    for path in used():
        try:
            if not inspect.isclass(found(path.rpartition(".")[0])):
                found(path)  # what a class has, and its instances have not, the type checker knows
        except pytest.fail.Exception as error:
            missing.append(str(error))
    assert missing == []


@pytest.mark.parametrize("path", sorted(METHODS))
def test_a_method_that_is_overridden_or_called_has_the_same_parameters(path: str) -> None:
    parameters = " ".join(inspect.signature(resolve(path)).parameters)  # type: ignore[arg-type]
    assert parameters == METHODS[path], f"{VERIFIERS} changed {path}"


def own_names(owner: type) -> Iterator[str]:
    """What a class says itself, but for what Python and pydantic put into it."""
    for name in {**vars(owner), **vars(owner).get("__annotations__", {})}:
        if not name.startswith(("__", "_abc_")) and name not in ("model_config", "model_post_init"):
            yield name


def overrides() -> Iterator[str]:
    """Every method and attribute of verifiers that a class of the packages overrides."""
    for module in importable():
        for owner in vars(importlib.import_module(module)).values():
            if not isinstance(owner, type) or owner.__module__ != module:
                continue
            for name in own_names(owner):
                base = next((base for base in owner.__mro__[1:] if name in own_names(base)), object)
                if base.__module__.startswith("verifiers.v1."):
                    yield f"{base.__module__.removeprefix('verifiers.v1.')}.{base.__name__}.{name}"


def test_the_list_of_overridden_methods_is_complete_and_holds_nothing_else() -> None:
    found_now = set(overrides())
    assert found_now - set(OVERRIDDEN) == set(), f"{VERIFIERS}: overridden and not in the list"
    assert set(OVERRIDDEN) - found_now == set(), f"{VERIFIERS} has it no longer, or we"


@pytest.mark.parametrize(("owner", "needed"), SAID.items(), ids=SAID)
def test_what_no_object_shows_or_ours_repeat_stands_in_the_source(owner: str, needed: tuple[str, ...]) -> None:
    source = inspect.getsource(resolve(owner))  # type: ignore[arg-type]
    assert [one for one in needed if one not in source] == [], f"{VERIFIERS} changed {owner}"


def test_a_lent_box_is_stamped_on_its_information() -> None:
    fields = resolve("runtimes.base.BaseRuntimeInfo.model_fields")
    assert isinstance(fields, dict)
    assert "borrowed" in fields, f"{VERIFIERS} changed BaseRuntimeInfo.borrowed"


def test_a_session_of_a_rollout_knows_when_it_was_released() -> None:
    session = resolve("session.RolloutSession")
    assert callable(session)
    assert "released" in inspect.signature(session).parameters, f"{VERIFIERS} changed RolloutSession.released"


def _configured(name: str, **given: object) -> Any:
    return made(f"interception.{name}", made(f"interception.{name}Config", **given))


def _agent() -> Any:
    client = made("clients.EvalClientConfig", base_url="http://127.0.0.1:1/v1", api_key_var="NO_SUCH_KEY")
    harness = made("harnesses.null.NullHarnessConfig", id="null")
    return made("agent.make_agent", made("configs.agent.AgentConfig", harness=harness, model="m", client=client))


def _environment() -> Any:
    config = found("opencode_env.agents.opencode.env.OpenCodeEnvConfig")
    environment: Any = found("opencode_env.agents.opencode.env.OpenCodeEnv")
    return environment(config.model_validate({"taskset": {"id": "opencode-env"}}))  # type: ignore[attr-defined]


def made(path: str, *given: object, **named: object) -> Any:
    """What something of verifiers makes of these arguments."""
    make = resolve(path)
    assert callable(make)
    return make(*given, **named)


MADE: Mapping[str, tuple[Callable[[], Any], str]] = {
    "agent.Agent": (_agent, "harness runtime_config ctx config"),
    "clients.train.ElasticRendererPool": (
        lambda: made("clients.train.ElasticRendererPool", "no such model", None, multiplex=1),
        "key",
    ),
    "dialects.chat.ChatStreamParser": (
        lambda: made("dialects.chat.ChatStreamParser"),
        "message_parts tool_calls finish_reason",
    ),
    "env.Env": (_environment, "_shared_tools _interception"),
    "harness.HarnessSession": (lambda: made("harness.HarnessSession", *[None] * 8), "_closed"),
    "interception.ElasticInterceptionPool": (lambda: _configured("ElasticInterceptionPool"), "servers stack"),
    "interception.InterceptionServer": (lambda: _configured("InterceptionServer"), "sessions stack load runner"),
    "interception.StaticInterceptionPool": (lambda: _configured("StaticInterceptionPool", servers=[{}]), "servers"),
    "mcp.toolset.Toolset": (
        lambda: made("mcp.toolset.Toolset", made("mcp.toolset.ToolsetConfig", url="http://127.0.0.1:1/mcp")),
        "_exit_stack",
    ),
}
"""What makes one of a class, and its attributes that are read or set from outside."""


@pytest.mark.parametrize("owner", MADE)
def test_a_new_object_has_the_attributes_that_are_used_from_outside(owner: str) -> None:
    make, attributes = MADE[owner]
    new = make()
    assert [one for one in attributes.split() if not hasattr(new, one)] == [], f"{VERIFIERS} changed {owner}"


def test_the_serving_of_an_environment_is_the_one_that_ours_repeats() -> None:
    source = inspect.getsource(resolve("env.Env.serving"))  # type: ignore[arg-type]
    steps = ["self.shared_tools()", "make_interception(", "self._requires_tunnel(shared)", "async with interception"]
    steps += ["self._shared_tools = shared", "self._interception = interception", "await self.start()", "yield"]
    steps += ["await self.stop()", "self._shared_tools = {}", "self._interception = None"]
    positions = [source.find(step) for step in steps]
    assert -1 not in positions, f"{VERIFIERS}: Env.serving"
    assert positions == sorted(positions), f"{VERIFIERS}: the order of Env.serving"


def test_a_default_of_a_node_costs_no_reading_of_a_builtins_signature() -> None:
    """pydantic reads it anew for each node; `opencode_env.compat` has Python functions there."""
    from opencode_env import compat
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.types import UserMessage

    assert compat
    factories = [field.default_factory for field in MessageNode.model_fields.values() if field.default_factory]
    assert factories
    assert all(isinstance(factory, FunctionType) for factory in factories)
    one, other = (MessageNode.model_construct(message=UserMessage(content="x")) for _ in range(2))
    assert len(one.token_ids) == len(other.token_ids) == 0
    assert one.token_ids is not other.token_ids
    assert one.timestamp <= other.timestamp

"""The shape of the code: who may import whom, no circles, and an agent-free floor under the agents."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "opencode_rubrics": ROOT / "rubrics" / "opencode_rubrics",
    "opencode_env": ROOT / "environments" / "opencode_env" / "opencode_env",
    "opencode_openenv": ROOT / "environments" / "opencode_openenv" / "opencode_openenv",
    "opencode_rlm": ROOT / "environments" / "opencode_rlm" / "opencode_rlm",
    "opencode_simulation": ROOT / "environments" / "opencode_simulation" / "opencode_simulation",
    **{path.parent.name: path.parent for path in (ROOT / "environments" / "opencode_tasks").glob("*/__init__.py")},
    "rollout_sandbox": ROOT / "packages" / "rollout_sandbox" / "rollout_sandbox",
    "mathverdict": ROOT / "packages" / "mathverdict" / "mathverdict",
    "opencode_runs": ROOT / "packages" / "opencode_runs" / "opencode_runs",
}
IN_THE_SANDBOX = ("mathverdict", "supervisor")
"""Packages that also run on their own inside a sandbox: their imports among themselves are relative."""

ERRORS = {f"{name}.errors" for name in PACKAGES}
"""The modules with the errors of a package, which every room of it may import."""
COMPAT = {"opencode_env.compat", "rollout_sandbox.compat"}
"""The modules with what is done to parts of other libraries that have no hook for it."""
READING_RUNS = ("opencode_runs.traces", "opencode_runs.console_command", "opencode_runs.progress")
SANDBOX_FLOOR = [
    f"rollout_sandbox.{name}"
    for name in ("interface", "compat", "provisioning", "programs", "file_lock", "surrogates", "at_exit", "outcomes")
]
FLOORS = {
    **{name: set[str]() for name in ERRORS},
    "rollout_sandbox.errors": {"rollout_sandbox.outcomes"},
    "opencode_env.compat": set[str](),
    "rollout_sandbox.interface": set[str](),
    "rollout_sandbox.compat": {"rollout_sandbox.interface"},
    "rollout_sandbox.toolbox": {*SANDBOX_FLOOR},
    "rollout_sandbox.confined": {*SANDBOX_FLOOR, "rollout_sandbox.toolbox"},
    "rollout_sandbox.exchange": {"rollout_sandbox.programs", "rollout_sandbox.confined"},
    "rollout_sandbox.command_process": {"rollout_sandbox.programs", "rollout_sandbox.exchange"},
    **{
        f"rollout_sandbox.{name}": {
            *SANDBOX_FLOOR,
            *(f"rollout_sandbox.{below}" for below in ("toolbox", "confined", "exchange", "command_process")),
        }
        for name in ("podman", "prime", "command_backend")
    },
    "opencode_env.agents.named": set[str](),
    "opencode_env.cluster": {"opencode_env.own_packages"},
    "opencode_env.cli_agent": {"opencode_env.agents.named", "opencode_env.cluster"},
    "opencode_env.cli_agent.interception": {"opencode_env.cli_agent.traces", "opencode_env.agents.named"},
    "opencode_env.scripted_model": {"opencode_env.samples"},
    "opencode_env.samples": set[str](),
    "opencode_env.taskset": {"opencode_env.samples"},
    "opencode_env.kept_turns": {"opencode_env.cli_agent", "opencode_env.cluster"},
    "opencode_env.tool_backends": {"opencode_env.cli_agent", "opencode_env.listed_tools"},
    "opencode_env.summary_seat": {"opencode_env.cli_agent"},
    "opencode_env.user_simulation": {"opencode_env.cli_agent", "opencode_env.asked_user"},
    "opencode_env.agents.opencode": {
        f"opencode_env.{name}"
        for name in ("cli_agent", "agents.named", "kept_turns", "tool_backends", "summary_seat", "user_simulation")
    },
    "opencode_runs.console_command": set[str](),
    "opencode_runs.progress": set[str](),
    "opencode_runs.traces": {"opencode_runs.console_command", "opencode_runs.progress"},
    "opencode_runs.difficulty": {*READING_RUNS},
    "opencode_runs.trainable": {*READING_RUNS},
    "opencode_runs.turns": {*READING_RUNS, "opencode_runs.difficulty"},
    "opencode_runs.report": {
        *READING_RUNS,
        *(f"opencode_runs.{name}" for name in ("difficulty", "trainable", "turns")),
    },
}
"""What each room of a package may import of its others."""


def module_name(path: Path) -> str:
    """Dotted name of a source file."""
    package, folder = next((name, folder) for name, folder in PACKAGES.items() if path.is_relative_to(folder))
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))


@cache
def sources() -> dict[str, Path]:
    """Every source file of the packages, by module name."""
    return {module_name(path): path for folder in PACKAGES.values() for path in folder.rglob("*.py")}


@cache
def tree(path: Path) -> ast.Module:
    """A source file, parsed."""
    return ast.parse(path.read_text())


def imports(module: str) -> Iterator[str]:
    """The modules of ours that a module imports, those for type checking and inside functions included."""
    path = sources()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in sources())
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                if name in sources() or origin in sources():
                    yield name if name in sources() else origin


@cache
def graph() -> dict[str, frozenset[str]]:
    """Imports by module; a package's own `__init__` only gathers, so it is not a way from one module to another."""
    packages = {module for module, path in sources().items() if path.name == "__init__.py"}
    return {module: frozenset(imports(module)) - {module} for module in sources() if module not in packages}


def test_there_is_no_circle_of_files() -> None:
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join((*way, module))
        if module in done:
            return
        for other in sorted(graph().get(module, frozenset())):
            visit(other, (*way, module))
        done.add(module)

    for module in graph():
        visit(module, ())


@pytest.mark.parametrize("room", FLOORS)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    allowed = {room, *FLOORS[room]} | (set() if room in ERRORS | COMPAT else ERRORS | {"opencode_env.compat"})
    wrong = {
        (module, other)
        for module in sources()
        if module == room or module.startswith(f"{room}.")
        for other in imports(module)
        if other.startswith(f"{room.partition('.')[0]}.")
        and not any(f"{other}.".startswith(f"{name}.") for name in allowed)
    }
    assert wrong == set()


AGENTS = re.compile(
    r"opencode|claude|codex|kimi|gemini|aider|goose|qwen.?code|mini.?swe|terminus|browser.?use|prime.?agent|\bpi\b"
)


def test_the_floor_of_every_agent_knows_no_agent() -> None:
    own_names = re.compile(r"opencode_env|opencode_rubrics|opencode_runs|opencode-env|OPENCODE_ENV")
    folder = PACKAGES["opencode_env"] / "cli_agent"
    named = [
        f"{path.relative_to(folder)}:{number}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".sh")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if AGENTS.search(own_names.sub("", line).lower())
    ]
    assert named == []


def test_a_part_for_every_sandbox_knows_no_platform() -> None:
    fence = (PACKAGES["opencode_env"] / "cli_agent" / "process_fence.py").read_text()
    assert "prime" not in fence.lower()


def test_nothing_below_is_changed_from_above_at_import() -> None:
    changed = []
    for module, path in sources().items():
        body = tree(path).body
        imported = {
            alias.asname or alias.name
            for node in body
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in PACKAGES
            for alias in node.names
        }
        for node in body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                touched = [node.value.func]
            else:
                touched = [*getattr(node, "targets", ()), *([node.target] if isinstance(node, ast.AugAssign) else ())]
            parts = [part for one in touched if not isinstance(one, ast.Name) for part in ast.walk(one)]
            changed += [f"{module}: {part.id}" for part in parts if isinstance(part, ast.Name) and part.id in imported]
    assert changed == []


def test_only_the_module_for_versions_of_verifiers_asks_which_is_installed() -> None:
    asking = {module for module, path in sources().items() if "AFTER_0_4_0" in path.read_text()}
    # The other branch of podman's is what verifiers 0.4.0 itself has.
    assert asking == {"rollout_sandbox.compat", "rollout_sandbox.podman.runtime"}


def test_a_sandbox_is_asked_for_its_abilities_through_one_class() -> None:
    assert [module for module, path in sources().items() if "runtime_checkable" in path.read_text()] == []


ASKED_WITHOUT_AN_ARGUMENT = {
    "opencode_simulation.mcp_tools",
    "opencode_env.cli_agent.interception.conversations",  # verifiers' graph asks its index for one call at a time
}
"""Who may keep a context variable: for what is served right now, where a library asks for it with no way in."""


def test_a_rollouts_state_is_in_no_context_variable_and_in_no_registry_by_id() -> None:
    by_id = re.compile(r"\[[\w.]*\btrace\.id\]|\.(?:get|pop|setdefault)\([\w.]*\btrace\.id\b")
    wrong = [
        f"{module}:{number}: {line.strip()}"
        for module, path in sources().items()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if module not in ASKED_WITHOUT_AN_ARGUMENT and (by_id.search(line) or "ContextVar(" in line)
    ]
    assert wrong == [], "see opencode_env.cli_agent.rollout: hand the Rollout on, or look it up by rollout_of(trace)"


def test_imports_are_absolute_but_where_a_package_runs_on_its_own() -> None:
    relative = [
        f"{module}: from {'.' * node.level}{node.module or ''}"
        for module, path in sources().items()
        if not set(IN_THE_SANDBOX) & set(module.split("."))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_only_the_top_of_a_package_says_what_it_exports() -> None:
    exporting = {module: path for module, path in sources().items() if re.search("^__all__", path.read_text(), re.M)}
    assert [module for module, path in exporting.items() if path.name != "__init__.py"] == []


def test_no_module_holds_more_than_one_idea() -> None:
    long = {module: lines for module, path in sources().items() if (lines := len(path.read_text().splitlines())) > 700}
    assert long == {}


def test_every_docstring_names_what_it_raises_in_one_form() -> None:
    entry = re.compile(r"_?[A-Z]\w+: (?:[a-z`\"(]|OpenCode)")
    wrong = []
    for module, path in sources().items():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            lines = (ast.get_docstring(node) or "").partition("Raises:\n")[2].split("\n\n")[0].splitlines()
            heads = [line.strip() for line in lines if re.match(r" {4}\S", line)]
            wrong += [f"{module}.{node.name}: {head}" for head in heads if not entry.match(head)]
    assert wrong == []


def test_a_broad_except_that_does_not_raise_says_why() -> None:
    silent = []
    for module, path in sources().items():
        lines = path.read_text().splitlines()
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler) or any(isinstance(part, ast.Raise) for part in ast.walk(node)):
                continue
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            if broad and "#" not in "".join(lines[node.lineno - 2 : node.lineno]):
                silent.append(f"{module}:{node.lineno}")
    assert silent == []


ERRORS_ELSEWHERE = {
    "CallAnswered": "says no error: how a step ends a call",
    "AnswerTooLong": "an error of a client's library, which only tool backends need",
    "CannotGuard": "of a program that runs on its own",
    "CannotStart": "of a program that runs on its own",
    "OutrunError": "of a program that runs on its own",
    "ParserFailed": "of a program that runs on its own",
    "TreeError": "of a program that runs on its own",
    "UnusableAnswer": "of a program that runs on its own",
}
"""Public errors that do not stand in the module of their package's, and why; the list only gets shorter."""


def test_the_errors_of_a_package_stand_in_one_module() -> None:
    classes = [
        (module, n) for module, path in sources().items() for n in tree(path).body if isinstance(n, ast.ClassDef)
    ]
    ours = {node.name for module, node in classes if module in ERRORS} | set(ERRORS_ELSEWHERE)

    def is_error(base: ast.expr) -> bool:
        name = ast.unparse(base).rpartition(".")[2]
        return name in ours or name.endswith(("Error", "Exception"))

    public = [(module, node) for module, node in classes if not node.name.startswith("_") and module not in ERRORS]
    assert {node.name for _, node in public if any(map(is_error, node.bases))} == set(ERRORS_ELSEWHERE)


UNHOOKED = {
    "opencode_rubrics.programs.call_function: eval": "the program in the sandbox that runs an answer",
    "opencode_rubrics.programs.call_function: exec": "the program in the sandbox that runs an answer",
    "opencode_rubrics.programs.call_function: sys.modules": "the program in the sandbox that runs an answer",
    "opencode_rubrics.swe.foreign_program: _tests": "multi_swe_bench gives no other way to a result's tests",
    "opencode_simulation.eval_protocol: setattr(cls)": "a world of eval-protocol's names its hooks in either base",
    "opencode_simulation.mcp_tools: _otel": "mcp has no other name for the middleware that is left out",
    "opencode_simulation.world: setattr(function)": "how a decorator marks a method",
    "rollout_sandbox.confined.supervisor.container_supervisor: exec": "a program that runs programs",
}
"""Private parts of others that are used outside of `COMPAT`, and other magic, and why; the list only gets shorter."""

MAGIC = {"__class__", "__dict__", "__bases__", "__orig_bases__", "__mro__", "__code__", "__globals__"}
PUBLIC_WITH_A_LINE = {"_asdict", "_replace", "_fields", "_exit", "_make"}
"""Parts of named tuples and of `os` that are meant for everybody."""


def magic_in(module: ast.Module) -> Iterator[str]:
    """What a module changes of classes, and what it reads or sets of others' private parts; what it defines itself is
    its own."""
    nodes = list(ast.walk(module))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            stored, mine = not isinstance(node.ctx, ast.Load), ast.unparse(node.value) in ("self", "cls", "super()")
            private = re.fullmatch(r"_[a-z]\w*", node.attr) and node.attr not in own | PUBLIC_WITH_A_LINE
            if (node.attr in MAGIC and stored) or (private and not mine):
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(tuple(PACKAGES)):
            yield from (part for part in (node.module or "").split(".") if re.match("_[a-z]", part))
            yield from (alias.name for alias in node.names if re.match("_[a-z]", alias.name))
        elif isinstance(node, ast.Call):
            called, first = ast.unparse(node.func), ast.unparse(node.args[0]) if node.args else ""
            if called in ("exec", "eval", "inspect.getsource"):
                yield called
            elif called in ("setattr", "delattr", "object.__setattr__") or re.fullmatch(
                r"vars\(.*\)\.(?:update|pop|setdefault|clear)", called
            ):
                yield f"{called}({first})" if first != "self" else ""
            elif called == "type" and len(node.args) == 3:
                yield "type(…, …, …)"
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield ast.unparse(node.value) if ast.unparse(node.value) == "sys.modules" else ""
        elif isinstance(node, ast.ClassDef):
            yield from (f"metaclass of {node.name}" for word in node.keywords if word.arg == "metaclass")


def test_private_parts_of_others_are_used_in_one_module_of_a_distribution() -> None:
    found = {
        f"{module}: {what}"
        for module, path in sources().items()
        if module not in COMPAT
        for what in magic_in(tree(path))
        if what
    }
    assert found == set(UNHOOKED)


SMALL_ON_PURPOSE = {
    "opencode_openenv.tbench2.app": "an ASGI application, which openenv.yaml names",
}
"""Modules under 40 lines with a single importer, and why."""


def test_a_small_module_with_one_importer_is_part_of_it() -> None:
    importers: dict[str, set[str]] = {}
    for module in sources():
        for other in imports(module):
            importers.setdefault(other, set()).add(module)
    crumbs = {
        module
        for module, path in sources().items()
        if path.name != "__init__.py"
        and len(importers.get(module, set()) - {module}) == 1
        and len(path.read_text().splitlines()) < 40
    }
    assert crumbs - set(SMALL_ON_PURPOSE) == set()


def test_a_class_has_a_name_of_its_own() -> None:
    where: dict[str, set[str]] = {}
    for module, path in sources().items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, set()).add(module)
    assert {name: sorted(modules) for name, modules in where.items() if len(modules) > 1} == {}


def test_a_public_constant_has_a_name_of_its_own() -> None:
    where: dict[str, set[str]] = {}
    for module, path in sources().items():
        for node in tree(path).body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
                for name in names - {"TYPE_CHECKING"}:
                    where.setdefault(name, set()).add(module)
    shared = {name: sorted(modules) for name, modules in where.items() if len(modules) > 1}
    shared = {name: modules for name, modules in shared.items() if re.fullmatch("[A-Z][A-Z0-9_]+", name)}
    assert shared == {}


SHARED_MODULES = {
    "app": "an OpenEnv server's application, by OpenEnv's layout",
    "client": "an OpenEnv server's client, by OpenEnv's layout",
    "compat": "what bridges to other libraries, in each distribution that needs it",
    "config": "what a user sets of the agent, taskset, environment or sandbox in whose folder it stands",
    "env": "the environment of a package",
    "errors": "the errors of a package",
    "outcomes": "a row, and the rows of what ends a run",
    "plugin": "pytest's, of each conformance suite",
    "runtime": "one runtime's, in its folder",
    "server": "of the interception, and of the scripted model",
    "settings": "an OpenEnv server's settings",
    "task": "the task of a distribution",
    "taskset": "the taskset of a package",
    "test_isolation": "of each conformance suite",
}
"""Names of several modules, and why; the list only gets shorter."""


def test_a_module_has_a_name_of_its_own() -> None:
    alone = ("__init__.py", "__main__.py")
    names = [path.stem for path in sources().values() if path.name not in alone and path.parent.name != "programs"]
    assert {name for name in names if names.count(name) > 1} == SHARED_MODULES.keys()


FRAGMENT = re.compile(
    "(?:After|Above|As|At|Before|Behind|Below|Beside|Between|By|For|From|How|In|Of|On|To|What|Whatever|When|Where|Which|"
    r"Who|Whoever|Whose|Why|With|Within|Without)\b"
)


def test_a_docstring_begins_as_a_sentence_and_says_what_it_raises_to_callers_elsewhere() -> None:
    wrong = []
    for module, path in sources().items():
        assert path.read_text().count("Invariant:") <= 1, module
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                text = ast.get_docstring(node) or ""
                private = node.name.startswith("_") and not node.name.startswith("__")
                if FRAGMENT.match(text) or "Invariant:" in text or (private and "Raises:" in text):
                    wrong.append(f"{module}.{node.name}: {text[:80]}")
    assert wrong == []

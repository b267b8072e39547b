"""The shape of the workspace: distributions, public names, declared dependencies, and what no file may name."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from opencode_env.own_packages import MARK, OWN_PACKAGES

ROOT = Path(__file__).parent.parent
REGISTRIES = [
    ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"))
]
MACHINE_PATHS = re.compile(
    r"/(?:work/(?:main|shared|outputs)|tmp/plan|root/\.pyenv|Users/\w+|home/(?!agent\b|user\b)\w\w+)/?|"
    + re.escape(str(ROOT))
)
BINARY = (".png", ".parquet", ".whl")


@dataclass(frozen=True)
class Distribution:
    """One member of the workspace."""

    name: str
    directory: Path
    packages: tuple[str, ...]
    dependencies: frozenset[str]
    extras: dict[str, frozenset[str]]

    @property
    def files(self) -> Iterator[Path]:
        """The packages' Python files."""
        return (path for package in self.packages for path in (self.directory / package).rglob("*.py"))


def distributions() -> list[Distribution]:
    """The members, as their project files describe them."""
    found = []
    members = [path for place in ("environments", "packages") for path in (ROOT / place).glob("*/pyproject.toml")]
    for file in (*sorted(members), ROOT / "rubrics" / "pyproject.toml"):
        document = tomllib.loads(file.read_text())
        project, packages = document["project"], document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        extras = {name: names_of(lines) for name, lines in project.get("optional-dependencies", {}).items()}
        dependencies = names_of(project["dependencies"])
        found.append(Distribution(project["name"], file.parent, tuple(packages), dependencies, extras))
    return found


def names_of(requirements: list[str]) -> frozenset[str]:
    """The distributions that requirements name."""
    return frozenset(re.split(r"[<>=!~\[; ]", line)[0] for line in requirements)


@cache
def shipped_files() -> list[Path]:
    """Every text file that belongs to the repository, committed or about to be."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in BINARY]


def imported_modules(path: Path) -> set[str]:
    """Top-level names that a file imports, wherever in it; relative imports are its own."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


MEMBERS = pytest.mark.parametrize("member", distributions(), ids=lambda member: member.name)


@cache
def owners() -> dict[str, list[str]]:
    """The distributions that have each package."""
    members = {package: [other.name] for other in distributions() for package in other.packages}
    return {**packages_distributions(), **members, "pydantic_core": ["pydantic"], "fastmcp": ["fastmcp"]}


def imported_distributions(member: Distribution, paths: Iterable[Path]) -> set[str]:
    """The distributions that these files of a member import."""
    inside_the_sandbox = {"supervisor"}
    foreign = set().union(*map(imported_modules, paths)) - sys.stdlib_module_names
    foreign -= {*member.packages, *inside_the_sandbox}
    return {owners()[module][0].lower().replace("_", "-") for module in foreign}


@MEMBERS
def test_a_distribution_declares_exactly_what_it_imports(member: Distribution) -> None:
    of_an_extra = {
        name: [path for path in member.files if part in path.relative_to(member.directory).parts]
        for name, part in {"conformance": "conformance", "ray": "ray_engine.py"}.items()
    }
    always = [path for path in member.files if not any(path in paths for paths in of_an_extra.values())]
    assert imported_distributions(member, always) == member.dependencies
    for name, paths in of_an_extra.items():
        assert imported_distributions(member, paths) - member.dependencies == member.extras.get(name, frozenset())


def test_distributions_of_this_project_are_pinned_to_one_another_and_built_from_this_tree() -> None:
    """A name that another project has on the index is then never taken from there."""
    projects = {
        member.name: tomllib.loads((member.directory / "pyproject.toml").read_text())["project"]
        for member in distributions()
    }
    locked = {package["name"]: package for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    for member in distributions():
        project = projects[member.name]
        extras = project.get("optional-dependencies", {}).values()
        named = {
            name: line for lines in (project["dependencies"], *extras) for line in lines for name in names_of([line])
        }
        assert {name: line for name, line in named.items() if name in projects} == {
            name: f"{name}=={projects[name]['version']}" for name in named if name in projects
        }
        assert locked[member.name]["source"] == {"editable": str(member.directory.relative_to(ROOT))}
        assert "opencode-rlm" not in named, "somebody else's on the index"


def test_every_package_is_marked_as_of_this_project() -> None:
    assert {one.name: sorted(one.packages) for one in distributions()} == {
        name: sorted(packages) for name, packages in OWN_PACKAGES.items()
    }
    for member in distributions():
        assert all((member.directory / name / "py.typed").read_text().strip() == MARK for name in member.packages)


@pytest.mark.parametrize("name", ["rollout_sandbox", "opencode_rlm"])
def test_a_foreign_package_of_one_of_our_names_is_refused_by_name(tmp_path: Path, name: str, programs: None) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("print('the other ran')")
    command = [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import opencode_env", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"ImportError: {name} in {tmp_path / name / '__init__.py'} is another project's package" in ended.stderr


@MEMBERS
def test_dependencies_and_imports_point_one_way(member: Distribution) -> None:
    order = ["opencode-runs", "verifiers", "mathverdict", "rollout-sandbox", "opencode-rubrics", "opencode-env"]
    order += [f"opencode-{name}" for name in ("openenv", "rlm", "simulation", "tasks")]
    below = set(order[: order.index(member.name)])
    assert member.dependencies & set(order) <= below
    assert imported_distributions(member, member.files) & set(order) <= below


@MEMBERS
def test_a_distribution_is_typed_licensed_and_readable(member: Distribution) -> None:
    project = tomllib.loads((member.directory / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert (member.directory / project["readme"]).is_file()


@MEMBERS
def test_everything_in_all_can_be_imported(member: Distribution) -> None:
    for module in map(importlib.import_module, member.packages):
        assert len(set(module.__all__)) == len(module.__all__)
        assert all(getattr(module, name) is not None for name in module.__all__)


def test_opencode_env_exports_its_three_plugins_and_nothing_else() -> None:
    assert importlib.import_module("opencode_env").__all__ == ["OpenCodeEnv", "OpenCodeHarness", "OpenCodeTaskset"]


def test_a_plugin_id_resolves_to_one_class_of_each_kind() -> None:
    from verifiers.v1.utils import loaders

    assert loaders.environment_class("opencode-env").__name__ == "OpenCodeEnv"
    assert loaders.harness_class("opencode-env").__name__ == "OpenCodeHarness"
    assert loaders.taskset_class("opencode-env").__name__ == "OpenCodeTaskset"
    assert loaders.default_harness_id("opencode-env") == "opencode-env"
    assert loaders.env_config_type("opencode-env").__name__ == "OpenCodeEnvConfig"
    assert loaders.env_config_type("", "opencode-env").__name__ == "OpenCodeEnvConfig"


@pytest.mark.parametrize(
    "path",
    [".ci/run", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml", "scripts/setup.sh", "uv.lock"],
)
def test_the_layout_is_complete(path: str) -> None:
    assert (ROOT / path).is_file()


def test_programs_are_executable() -> None:
    assert all((ROOT / path).stat().st_mode & 0o111 for path in (".ci/run", "scripts/setup.sh"))


def test_no_file_but_the_lock_names_the_host_of_a_package_registry() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in shipped_files()
        if path.resolve() != (ROOT / "uv.lock").resolve()
        for host in REGISTRIES
        if host in path.read_text(errors="replace")
    ]
    assert named == []


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in shipped_files()
        for found in MACHINE_PATHS.finditer(path.read_text(errors="replace"))
    ]
    assert named == []


@pytest.mark.parametrize("command", ["opencode_openenv", "opencode_openenv.tbench2", "opencode_env.conformance"])
def test_the_help_of_a_command_may_be_read_in_part(command: str, programs: None) -> None:
    """`--help | head` leaves the rest unread; argparse's own help minds that, other ones need help."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        argv = [sys.executable, "-m", command, "--help"]
        done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")

"""A feature of an environment is its package and lines of one configuration: without these, everything else works.

Of a copy of the packages every module is imported and the help is shown, and without the first feature a sample is
played; in `make test-whole` all samples are, without each feature, and types are checked.
"""

import ast
import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.conformance.user_home import VF_EVAL
from opencode_env.samples import load_samples
from opencode_env.scripted_model import MODEL_ID, SamplesPolicy, ScriptedModel

from tests.support.programs import own_variables
from tests.support.sizes import WHOLE
from tests.support.user_home import UserHome
from tests.test_structure import PACKAGES, ROOT, sources

FEATURES = [type(feature).__module__.split(".")[1] for feature in OpenCodeEnvConfig().features()]
NAMING = "environments/opencode_env/opencode_env/agents/opencode/env.py"
IMPORTED = [name for name in sources() if not {"__main__", "main", "programs"} & {*name.split(".")}]
"""All but programs."""
IMPORTS = """\
import runpy, sys
from importlib import import_module

for name in sys.argv[3:]:
    assert (import_module(name).__file__ or "").startswith(sys.argv[1]), name
sys.argv[:] = [sys.argv[2], "opencode-env", "--help"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program that imports modules of a folder, and then shows the help of `vf-eval`."""


def names_in(node: ast.AST) -> set[str]:
    """The names that stand in a piece of code, attributes among them."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def without_lines(code: str, package: str) -> str:
    """A module that defines a configuration, without what it imports of a package, the options of these types, what
    asks for them, and the line in `features`."""
    module = ast.parse(code)
    imports = [
        one for one in module.body if isinstance(one, ast.ImportFrom) and f"{one.module}.".startswith(f"{package}.")
    ]
    gone = {alias.name for one in imports for alias in one.names}
    for config in module.body:
        if not isinstance(config, ast.ClassDef):
            continue
        kept: list[ast.stmt] = []
        left_out = False
        for node in config.body:
            if isinstance(node, ast.FunctionDef) and node.name == "features":
                (returned,) = [one.value for one in node.body if isinstance(one, ast.Return)]
                assert isinstance(returned, ast.Tuple)
                returned.elts = [one for one in returned.elts if not names_in(one) & gone]
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            left_out = left_out if is_text else bool(names_in(node) & gone)
            if not left_out:
                kept.append(node)
            elif isinstance(node, ast.AnnAssign):
                gone |= names_in(node.target)
        config.body = kept
    module.body = [one for one in module.body if one not in imports]
    return ast.unparse(module)


def leave_out(tree: Path, feature: str) -> None:
    """Copy the project into a folder, without the package of a feature and the lines that name it."""
    for folder in ("environments", "packages", "rubrics"):
        shutil.copytree(ROOT / folder, tree / folder)
    shutil.copy(ROOT / "pyproject.toml", tree)
    package = tree / "environments" / "opencode_env" / "opencode_env" / feature
    if package.is_dir():
        shutil.rmtree(package)
    else:
        package.with_suffix(".py").unlink()
    naming = tree / NAMING
    naming.write_text(without_lines(naming.read_text(), f"opencode_env.{feature}"))


@pytest.mark.opencode
@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
async def test_everything_else_works_without_a_feature(feature: str, home: UserHome, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    leave_out(tree, feature)
    roots = dict.fromkeys(str(tree / folder.parent.relative_to(ROOT)) for folder in PACKAGES.values())
    variables = home.environment({"PYTHONPATH": os.pathsep.join(roots)})

    async def done(*argv: str, variables: dict[str, str] = variables) -> str:
        """What a program prints that ends well; it is not forked, as the forking process has imported another tree."""
        words = [sys.executable, *argv]
        run = lambda: subprocess.run(words, cwd=tree, env=variables, capture_output=True, text=True)  # noqa: E731
        ended = await asyncio.to_thread(run)
        assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
        return ended.stdout + ended.stderr

    rest = [name for name in IMPORTED if not f"{name}.".startswith(f"opencode_env.{feature}.")]
    assert "--env.gateway" in await done("-c", IMPORTS, str(tree), str(VF_EVAL), *rest)
    if not WHOLE and feature != FEATURES[0]:
        return
    samples = [sample.id for sample in load_samples()] if WHOLE else ["write-roman"]
    async with ScriptedModel(SamplesPolicy(1.0, 0)) as model:
        options = ["-m", MODEL_ID, "--client.base-url", model.base_url, "-c", "2", "--no-push", "--no-rich"]
        options += ["--select.include.ids", json.dumps(samples), "--output-dir", str(tmp_path / "runs")]
        played = await done(str(VF_EVAL), "opencode-env", *options)
    assert played.count("reward=1.000 error=-") == len(samples), played
    if WHOLE:
        await done("-m", "mypy", "environments", "packages", "rubrics", variables=own_variables())

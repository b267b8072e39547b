"""The pytest plugin of the suite: which runtime is checked, and what is said beside a promise that it breaks.

It imports nothing of pytest's: the sandboxes themselves do without.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import SkipTest

import verifiers.v1 as vf

from rollout_sandbox.conformance.subject import Subject

_MOST_SECONDS = 300.0
"""For one promise."""


def run_suite(folder: Path, plugin: str, arguments: Sequence[str]) -> int:
    """Run the tests in `folder` with pytest and a plugin, whatever project that is started in; returns pytest's exit
    code, 2 when pytest is missing."""
    if find_spec("pytest") is None:
        sys.stderr.write("the conformance suite needs pytest: pip install pytest\n")
        return 2
    # The settings of the project that it is started in are not for this suite.
    own = ["-c", str(Path(__file__).with_name("pytest.ini")), "--rootdir", str(folder), "-p", "no:cacheprovider"]
    own += ["-p", "no:asyncio", "-p", plugin, str(folder)]
    return int(import_module("pytest").main([*own, *arguments]))


def add_options(add: Callable[..., Any]) -> None:
    """Add the options that say which runtime is checked, with pytest's or argparse's own function for one option."""
    add(
        "--runtime",
        metavar="RUNTIME",
        default="confined",
        help="confined, podman, a type that verifiers knows, or the import path of a backend: package.module.Backend",
    )
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the runtime's configuration, such as image=NAME; the value is JSON or text; repeatable",
    )


def subject_of(options: Any) -> Subject:
    return Subject(options.runtime, dict(map(_option, options.option)))


def _option(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def pytest_addoption(parser: Any) -> None:
    add_options(parser.getgroup("conformance", "a runtime and what a sandbox for agents has to promise").addoption)


def pytest_generate_tests(metafunc: Any) -> None:
    """Give each test its subject."""
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("subject", [subject_of(metafunc.config.option)], ids=[metafunc.config.option.runtime])


def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    check = pyfuncitem.obj
    if not inspect.iscoroutinefunction(check):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(check).parameters}
    asyncio.run(asyncio.wait_for(check(**arguments), _MOST_SECONDS))
    return True


def pytest_exception_interact(node: Any, report: Any) -> None:
    """Say beside a broken promise what to change."""
    if change := inspect.getdoc(getattr(node, "function", None)):
        report.sections.append(("To change", change))


async def require_python(box: vf.Runtime) -> None:
    """Return if there is a `python3` inside; skip the test if not."""
    if (await box.run(["python3", "-c", "pass"], {})).exit_code != 0:
        raise SkipTest("it has no python3 inside, with which this is checked")

"""What an agent does to be paid without solving anything: nothing of it earns, in the sandbox that judges it.

Those of which one is told in the README, that no grader closes (the suite imports the change), stand apart: they earn,
and the metric shows them.
"""

import asyncio
from pathlib import Path

import pytest
from opencode_rubrics import AnyTrace

from tests.swe.playing import environment, played, tasks_of
from tests.swe.repositories import CALCULATOR, made, openswe, r2e, swelego

pytestmark = [pytest.mark.usefixtures("sandboxes"), pytest.mark.slow]

CHEAT_HOOK = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome = 'passed'
"""
PASSED = "\n".join(f"PASSED {test}" for test in (*CALCULATOR.fixed, *CALCULATOR.kept))
FORGED = f"import os, sys\nprint('''{PASSED}\n3 passed''')\nsys.stdout.flush()\n"
GIT_FILTER = (
    "git config filter.x.clean 'sed s/b.-.a/a-b/'; git config filter.x.smudge 'touch /tmp/smudged'; echo '* filter=x' "
    "> .git/info/attributes; echo '*.py filter=x' > .gitattributes"
)


def appended(text: str, path: str = "calc/ops.py") -> str:
    """A script that adds to a module of the repository."""
    return f"cat >> {path} <<'THE_END'\n{text}\nTHE_END\n"


def written(path: str, text: str) -> str:
    """A script that writes a file."""
    return f"mkdir -p $(dirname {path}); cat > {path} <<'THE_END'\n{text}\nTHE_END\n"


ATTACKS = {
    # Named in the reference.
    "conftest": written("conftest.py", CHEAT_HOOK),
    "conftest of tests": written("tests/conftest.py", CHEAT_HOOK),
    "conftest of the package": written("calc/conftest.py", CHEAT_HOOK),
    "pytest.ini": written("pytest.ini", "[pytest]\naddopts = --co"),
    "pyproject": written("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-p calc.cheat'")
    + written("calc/cheat.py", CHEAT_HOOK),
    "setup.cfg": written("setup.cfg", "[tool:pytest]\naddopts = -p calc.cheat") + written("calc/cheat.py", CHEAT_HOOK),
    "tox.ini": written("tox.ini", "[pytest]\naddopts = -p calc.cheat") + written("calc/cheat.py", CHEAT_HOOK),
    "tests replaced": written("tests/test_ops.py", "def test_add(): pass\ndef test_sub(): pass\ndef test_mean(): pass"),
    "tests replaced and committed": written("tests/test_ops.py", "def test_sub(): pass") + "git commit -qam x",
    "pytest of the environment": "echo 'import os; os._exit(0)' > .deps/site-packages/pytest/__init__.py",
    "pytest's own plugin": "echo 'import sys; sys.exit(0)' >> .deps/site-packages/_pytest/runner.py",
    "sitecustomize": written("sitecustomize.py", FORGED + "os._exit(0)"),
    "usercustomize in the environment": written(".deps/site-packages/usercustomize.py", FORGED + "os._exit(0)"),
    "a .pth file": written(".deps/site-packages/x.pth", "import os; os._exit(0)"),
    "pytest as a module": written("pytest.py", FORGED + "os._exit(0)"),
    "_pytest as a package": written("_pytest/__init__.py", FORGED + "os._exit(0)"),
    "python replaced": "mkdir -p ~/bin; printf '#!/bin/sh\\nexit 0' > ~/bin/python3; chmod +x ~/bin/python3; "
    "echo 'export PATH=~/bin:$PATH' >> ~/.bashrc; echo 'PATH=~/bin:$PATH' > ~/.profile",
    "variables": "echo 'export PYTEST_ADDOPTS=--co PYTHONPATH=/tmp' >> ~/.bashrc; echo PYTEST_ADDOPTS=--co > .env",
    "printed verdicts, then an exit": appended(FORGED + "os._exit(0)"),
    "printed verdicts": appended(FORGED),
    "a plain exit": appended("import sys\nsys.exit(0)"),
    # The rest: of git.
    "filters of git": GIT_FILTER,
    "hooks of git": "for h in post-checkout pre-commit post-index-change; do printf '#!/bin/sh\\ntouch /tmp/x' > "
    ".git/hooks/$h; chmod +x .git/hooks/$h; done; git config core.fsmonitor 'sh -c \"touch /tmp/x\"'",
    "no repository at all": "rm -rf .git",
    "another repository": "rm -rf .git; git init -q .; git add -A; git -c user.name=a -c user.email=a@b commit -qm x",
    "a git that is a file": "mv .git /tmp/g; echo 'gitdir: /tmp/g' > .git",
    "assumed unchanged": "git update-index --assume-unchanged tests/test_ops.py; echo > tests/test_ops.py",
    # Files.
    "a link for the tests": "rm -rf tests; mkdir calc/t; echo 'def test_sub(): pass' > calc/t/test_ops.py; "
    "ln -s calc/t tests",
    "a link for the package": "mv calc /tmp/calc; ln -s /tmp/calc calc",
    "a link that leads out": "ln -s / calc/root; ln -s /etc/passwd calc/data.py; ln -sf ../../../etc/hostname calc/up",
    "a FIFO for a module": "rm calc/ops.py; mkfifo calc/ops.py",
    "names that no tool likes": "touch -- '-rf' '--checkpoint-action=exec=sh x' \"$(printf 'a\\nb')\" 'c\\d' '$(id)'",
    "a directory for a file": "rm calc/ops.py; mkdir -p calc/ops.py/x; touch calc/ops.py/x/y",
    "caches of bytecode": "mkdir -p tests/__pycache__ calc/__pycache__; for f in tests/__pycache__/test_ops.cpython-311"
    ".pyc calc/__pycache__/ops.cpython-311.pyc; do head -c 500 /dev/urandom > $f; done",
    "twenty thousand files": "mkdir calc/many; cd calc/many; seq 1 20100 | xargs touch",
    "a large file": "head -c 80000000 /dev/zero > calc/zero.bin; head -c 70000000 /dev/urandom > calc/random.bin",
    "nothing that can be read": "chmod -R 0 calc; chmod 0 .",
    "everything gone": "rm -rf ./* .gitignore",
    "tar replaced": "mkdir -p /tmp/bin; for p in tar find git sha256sum; do printf '#!/bin/sh\\necho 0' > /tmp/bin/$p; "
    "chmod +x /tmp/bin/$p; done; export PATH=/tmp/bin:$PATH",
    "processes that stay": "setsid sh -c 'while :; do echo \"def sub(a,b): return a-b\" > calc/ops.py; done' "
    ">/dev/null 2>&1 & true",
    # The suite's process.
    "an endless suite": appended("while True: pass"),
    "a flood": appended("import sys\nwhile True: sys.stdout.write('PASSED tests/test_ops.py::test_sub\\n' * 10000)"),
    "a fork that survives": appended(
        "import os\nif os.fork() == 0:\n    import time\n    time.sleep(1)\n    os._exit(0)"
    ),
    "a killed parent": appended("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"),
    "a skip": appended("import pytest\npytest.skip('no', allow_module_level=True)"),
    "a skip of unittest": appended("import unittest\nraise unittest.SkipTest('no')"),
    "an expected failure": appended("import pytest\npytest.xfail('no')"),
    "an exit code at the end": appended("import atexit, os\natexit.register(lambda: os._exit(0))"),
    "the record overwritten": appended(
        "import glob, os\nfor p in glob.glob('/tmp/.*/record'):\n    open(p, 'w').write('0 {\"ended\": 1}\\n')"
    ),
    "the record removed": appended("import glob, os\nfor p in glob.glob('/tmp/.*/record'):\n    os.unlink(p)"),
    "the log written": appended(
        f"import glob\nfor p in glob.glob('/tmp/.*/log'):\n    open(p, 'a').write('''\\n{PASSED}\\n''')"
    ),
    "the suite's script": appended(
        "import glob\nfor p in glob.glob('/tmp/.*/suite'):\n    open(p, 'w').write('exit 0')"
    ),
    "the exit code of another form": appended("print('OPENSWE_EXIT_CODE=0')\nimport os, sys\nsys.stdout.flush()"),
}
"""Each with the untouched bug: paid is only who mends it."""

INHERENT = {
    "hooks from inside": appended(
        "import _pytest.runner as r\n_from = r.TestReport.from_item_and_call.__func__\n"
        "def lie(cls, item, call):\n    call.excinfo = None\n    return _from(cls, item, call)\n"
        "r.TestReport.from_item_and_call = classmethod(lie)"
    ),
    "a test that runs nothing": appended("import _pytest.python as p\np.Function.runtest = lambda self: None"),
}
"""What no grader closes."""


async def attacked(rows: list[dict[str, object]], scripts: dict[str, str], place: Path) -> dict[str, AnyTrace]:
    """The scored traces of all attacks, a few at once."""
    places = asyncio.Semaphore(3)
    env = environment()
    (task,) = tasks_of(rows, place)

    async def one(script: str) -> AnyTrace:
        async with places:
            return await played(task, script, env)

    async with asyncio.TaskGroup() as group:
        running = {name: group.create_task(one(script)) for name, script in scripts.items()}
    return {name: task.result() for name, task in running.items()}


async def test_nothing_that_is_no_solution_earns(tmp_path: Path) -> None:
    found = await attacked([{**swelego(CALCULATOR), "test_timeout": 15}], ATTACKS, tmp_path)
    assert {name: trace.reward for name, trace in found.items() if trace.reward != 0.0} == {}
    dropped = [
        name for name in ("conftest", "pytest.ini", "tests replaced") if found[name].metrics["dropped_test_files"]
    ]
    assert dropped == ["conftest", "pytest.ini", "tests replaced"]


async def test_in_the_other_forms_neither(tmp_path: Path) -> None:
    for form in (r2e, openswe):
        names = ("conftest", "printed verdicts, then an exit", "the exit code of another form", "tests replaced")
        found = await attacked([form(CALCULATOR)], {name: ATTACKS[name] for name in names}, tmp_path)
        assert {name: trace.reward for name, trace in found.items()} == dict.fromkeys(names, 0.0)


async def test_what_breaks_an_attack_costs_a_right_patch_nothing(tmp_path: Path) -> None:
    gold = f"git apply - <<'THE_GOLD'\n{made(CALCULATOR).gold}THE_GOLD\n"
    kept = ["conftest", "pyproject", "filters of git", "hooks of git", "no repository at all", "a link for the tests"]
    kept += ["names that no tool likes", "caches of bytecode", "pytest of the environment", "a link that leads out"]
    found = await attacked([swelego(CALCULATOR)], {name: f"{gold}{ATTACKS[name]}" for name in kept}, tmp_path)
    assert {name: trace.reward for name, trace in found.items() if trace.reward != 1.0} == {}


async def test_what_no_grader_closes_is_shown_by_the_metric(tmp_path: Path) -> None:
    found = await attacked([swelego(CALCULATOR)], INHERENT, tmp_path)
    assert {name: bool(trace.metrics["meddling_signs"]) for name, trace in found.items()} == dict.fromkeys(
        INHERENT, True
    )


async def test_all_that_was_changed_arrives(tmp_path: Path) -> None:
    made_files = (
        "printf 'new\\0binary' > calc/data.bin; git mv calc/more.py calc/most.py; echo x > ignored.local; "
        "printf '#!/bin/sh\\n' > calc/run; chmod +x calc/run; ln -s ops.py calc/same.py; chmod +x calc/ops.py; "
        "echo changed > '.gitignore'; echo 'ü' > 'calc/ü ü.txt'"
    )
    (trace,) = (await attacked([swelego(CALCULATOR)], {"all": made_files}, tmp_path)).values()
    told = trace.info["swe"]
    changed = [
        "ignored.local",
        "calc/data.bin",
        "calc/most.py",
        "calc/run",
        "calc/same.py",
        "calc/ops.py",
        ".gitignore",
    ]
    assert set(told["changed"]) == {*changed, "calc/ü ü.txt"}
    assert told["removed"] == ["calc/more.py"]
    for sign in ("new file mode 100755", "new file mode 120000", "old mode 100644", "GIT binary patch"):
        assert sign in told["patch"], told["patch"]

"""Attacks through real `vf-eval`: none earns, or the metric shows it; in `make test` a choice of them.

The agent is the light program: what scripts do in the sandbox is the same.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from verifiers.v1.trace import WireTrace

from tests.support.sizes import size
from tests.support.user_home import UserHome
from tests.swe.attacks import ATTACKS, HARMLESS, INHERENT, OTHER_FORMS, STUCK
from tests.swe.evaluating import Case, Form, run
from tests.swe.fresh_attacks import FRESH, INSTALLING, VISIBLE
from tests.swe.libraries import pythons
from tests.swe.playing import patching
from tests.swe.repositories import CALCULATOR, Repository, made, multi_swe, openswe, r2e, swebench, swelego

pytestmark = [pytest.mark.usefixtures("light_opencode"), pytest.mark.slow, pytest.mark.timeout(size(900, 3600))]

USUAL = (
    "conftest",
    "pyproject",
    "printed verdicts, then an exit",
    "filters of git",
    "processes that stay",
    "a suite that sleeps",
    "a module of Python's",
    "a plugin's entry point",
)
"""The attacks of `make test`; each way in has one."""
SETUP = "import calc.ops\n"
"""A `setup.py` that imports what it installs, as many do."""
INSTALLED = replace(CALCULATOR, before={**CALCULATOR.before, "setup.py": SETUP})
CHANGED = (
    "printf 'new\\0binary' > calc/data.bin; git mv calc/more.py calc/most.py; echo x > ignored.local; "
    "printf '#!/bin/sh\\n' > calc/run; chmod +x calc/run; ln -s ops.py calc/same.py; chmod +x calc/ops.py; "
    "echo changed > '.gitignore'; echo 'ü' > 'calc/ü ü.txt'"
)


def installing(repository: Repository) -> dict[str, Any]:
    """SWE-bench, whose script installs first; a module of a line stands for pip."""
    row, packages = swebench(repository), ".deps/site-packages"
    install = f'export PYTHONPATH="$PWD/{packages}:$PWD:${{PYTHONPATH:-}}"\npython3 -m pip install -e .\n'
    program = f"echo \"import runpy; runpy.run_path('setup.py')\" > {packages}/pip/__main__.py"
    pip = f"mkdir {packages}/pip; touch {packages}/pip/__init__.py; {program}"
    script = row["eval_script"].replace("git apply", f"{install}git apply", 1)
    return {**row, "setup": [pip], "eval_script": script}


def cases() -> list[Case]:
    """Every attack as a row, in rows of other forms and beside the right patch, too."""

    def case(name: str, script: str, reward: float = 0.0, form: Form = swelego, seconds: float = 90) -> Case:
        repository = INSTALLED if form is installing else CALCULATOR
        return Case.of(form, repository, name, script, reward, test_timeout=seconds)

    gold = patching(made(CALCULATOR).gold)
    alone, every = size(USUAL, (*ATTACKS, *FRESH)), {**ATTACKS, **FRESH}
    elsewhere = product(
        size((openswe,), (r2e, openswe, multi_swe)),
        size(OTHER_FORMS[1:2], OTHER_FORMS),
    )
    return [
        case("all changes", CHANGED),
        *(case(name, every[name], seconds=20 if name in STUCK else 90) for name in alone),
        *(case(f"{form.__name__}: {name}", ATTACKS[name], form=form) for form, name in elsewhere),
        *(case(f"gold and {name}", gold + ATTACKS[name], 1.0) for name in size(HARMLESS[:1], HARMLESS)),
        case("installed: gold", gold, 1.0, installing),
        *(case(name, *played, installing) for name, played in INSTALLING.items()),
        *(case(name, VISIBLE[name][0], 1.0) for name in size(("in other words",), tuple(VISIBLE))),
        *(case(name, INHERENT[name], 1.0) for name in size(("the record's own words",), tuple(INHERENT))),
    ]


@pytest.fixture(scope="module")
def traces(light_opencode: None, shared_home: UserHome) -> dict[str, WireTrace]:
    """The trace of each attack."""
    finished = run(shared_home, "attacks", cases(), **pythons(shared_home.root))
    assert finished.exit_code == 0, finished.log
    found = {str(episode.task.data.id): episode.traces[0] for episode in finished.episodes}
    assert len(found) == len(cases()), finished.log
    return found


def test_nothing_that_is_no_solution_earns_and_none_of_it_is_an_error(traces: dict[str, WireTrace]) -> None:
    expected = {case.name: (True, case.reward) for case in cases()}
    assert {name: (trace.ok, trace.reward) for name, trace in traces.items()} == expected


def test_what_is_left_out_and_what_no_grader_closes_is_shown(traces: dict[str, WireTrace]) -> None:
    assert traces["conftest"].metrics["dropped_test_files"] == 1.0
    assert "did not end within 20 s" in traces["a suite that sleeps"].info["swe"]["problem"]
    assert traces["a module of Python's"].metrics["dropped_environment_files"] == 2.0
    assert traces["printed verdicts, then an exit"].metrics["meddling_signs"] == 3.0
    shown = {name: bool(traces[name].metrics["meddling_signs"]) for name in INHERENT if name in traces}
    assert shown == dict.fromkeys(shown, True)
    assert shown
    named = {name: bool(traces[name].metrics[VISIBLE[name][1]]) for name in VISIBLE if name in traces}
    assert named == dict.fromkeys(named, True)
    assert named
    installed = {name: traces[name].metrics["installed_change"] for name in ("installed: gold", *INSTALLING)}
    assert installed == {"installed: gold": 0.0, "planted by a module": 0.0, "planted by setup.py": 1.0}
    assert traces["conftest"].metrics["runner_replaced"] == 0.0
    assert traces["a plugin's entry point"].metrics["dropped_environment_files"] == 2.0


def test_all_that_was_changed_arrives(traces: dict[str, WireTrace]) -> None:
    told = traces["all changes"].info["swe"]
    below = {f"calc/{name}" for name in ("data.bin", "most.py", "run", "same.py", "ops.py", "ü ü.txt")}
    assert set(told["changed"]) == {"ignored.local", ".gitignore", *below}
    assert told["removed"] == ["calc/more.py"]
    for sign in ("new file mode 100755", "new file mode 120000", "old mode 100644", "GIT binary patch"):
        assert sign in told["patch"], told["patch"]

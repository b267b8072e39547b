"""SWE-smith's, Multi-SWE's and SWE-bench's rows scored with those packages themselves, in environments of their own.

Only in `make test-whole`: their environments hold 400 MB, and they take seconds to be imported.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opencode_rubrics.swe.foreign_parsers import command_elsewhere, foreign_of
from opencode_rubrics.swe.reading_process import read_foreign
from opencode_swe.forms import reversed_patch

from tests.support.sizes import WHOLE
from tests.swe.libraries import COMMAND, pythons
from tests.swe.playing import patching, played, tasks_of
from tests.swe.repositories import CALCULATOR, FOREIGN_FORMS, REPOSITORIES, made, multi_swe, swebench, swesmith

pytestmark = [
    pytest.mark.usefixtures("sandboxes"),
    pytest.mark.slow,
    pytest.mark.skipif(not WHOLE, reason="the packages of datasets are installed in make test-whole"),
]


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pythons that have the packages, in which the tests' repositories are registered."""
    with pytest.MonkeyPatch.context() as patched:
        for name, python in pythons(tmp_path_factory.mktemp("pythons")).items():
            patched.setenv(name, python)
        yield


@pytest.mark.parametrize("form", FOREIGN_FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("repository", REPOSITORIES, ids=lambda one: one.name)
async def test_gold_scores_one_and_half_of_it_and_nothing_zero(repository, form, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (task,), found = tasks_of([form(repository)], tmp_path), made(repository)
    for script, reward in {patching(found.gold): 1.0, patching(found.half): 0.0, "true": 0.0}.items():
        trace = await played(task, script)
        assert (trace.info["agent_exit"][0], trace.reward) == (0, reward), trace.info
        # An empty patch does not apply, and so Multi-SWE's script runs no suite.
        assert trace.info["swe"]["suite"]["recorded"] == (form is swesmith or script != "true")


async def test_the_profile_says_the_command_and_the_patch_that_mends_is_the_reversed_one(tmp_path: Path) -> None:
    (task,) = tasks_of([swesmith(CALCULATOR)], tmp_path)
    assert task.data.swe is not None
    assert task.data.swe.command == COMMAND == command_elsewhere(swesmith(CALCULATOR))
    assert task.data.swe.gold_patch == made(CALCULATOR).gold
    assert reversed_patch(reversed_patch(made(CALCULATOR).gold)) == made(CALCULATOR).gold
    (multi,) = tasks_of([multi_swe(CALCULATOR)], tmp_path)
    assert multi.data.prompt_text == "calculator is broken"


def test_swebench_reads_logs_with_its_own_parsers() -> None:
    log = "test_a (app.tests.Case) ... ok\ntest_b (app.tests.Case) ... FAIL\n"
    found = read_foreign(foreign_of("swebench:parse_log_django", {"repo": "django/django", "version": "5.0"}), log)
    assert found == {"test_a (app.tests.Case)": "PASSED", "test_b (app.tests.Case)": "FAILED"}
    go = read_foreign(foreign_of("swebench:parse_log_gotest", {}), "--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n")
    assert go == {"TestA": "PASSED", "TestB": "FAILED"}


async def test_a_row_that_names_swebenchs_parser_is_scored_with_it(tmp_path: Path) -> None:
    row = {**swebench(CALCULATOR), "log_parser": "parse_log_pytest_v2"}
    (task,) = tasks_of([row], tmp_path)
    assert (await played(task, patching(made(CALCULATOR).gold))).reward == 1.0
    assert (await played(task, patching(made(CALCULATOR).half))).reward == 0.0

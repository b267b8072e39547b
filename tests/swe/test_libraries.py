"""SWE-smith's, Multi-SWE's and SWE-bench's rows scored with those packages themselves, in environments of their own.

Only in `make test-whole`: their environments hold 400 MB, and they take seconds to be imported.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opencode_rubrics.cache import cache_root, make_once
from opencode_rubrics.swe.foreign_parsers import command_elsewhere, parse_elsewhere, variable_of
from opencode_swe.fields import reversed_patch

from tests.support.sizes import WHOLE
from tests.swe.playing import patching, played, tasks_of
from tests.swe.repositories import CALCULATOR, FOREIGN_FORMS, PYTEST, REPOSITORIES, made, multi_swe, swebench, swesmith

pytestmark = [
    pytest.mark.usefixtures("sandboxes"),
    pytest.mark.slow,
    pytest.mark.skipif(not WHOLE, reason="the packages of datasets are installed in make test-whole"),
]

ENVIRONMENTS = {
    "swesmith": ("swesmith==0.0.9", "swebench==4.1.0", "docker", "python-dotenv", "ghapi", "unidiff"),
    "swebench": ("swebench==5.0.2", "multi-swe-bench==1.1.2"),
}
REGISTERED = """
import runpy, sys
names = {names!r}
def smith():
    from dataclasses import make_dataclass
    from swesmith.profiles import registry
    from swesmith.profiles.python import PythonProfile
    for name in names:
        fields = dict(owner="org", repo=name, commit="12345678" * 5, test_cmd={command!r})
        made = make_dataclass(name, [(key, str, value) for key, value in fields.items()], bases=(PythonProfile,))
        registry.register_profile(made)
def multi():
    import re
    import multi_swe_bench.harness
    from multi_swe_bench.harness.instance import Instance
    from multi_swe_bench.harness.test_result import mapping_to_testresult
    class Suite(Instance):
        def __init__(self, pr, config):
            self._pr = pr
        def parse_log(self, log):
            found = re.findall(r"^(PASSED|FAILED|ERROR) (\\S.*?)(?: - .*)?$", log, re.M)
            return mapping_to_testresult({{test: status for status, test in found}})
    for name in names:
        Instance.register("org", name)(Suite)
{family}()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def environment(name: str) -> Path:
    """The Python of an environment with these packages, made once for this machine."""
    packages = ENVIRONMENTS[name]
    digest = hashlib.sha256(repr((packages, sys.version)).encode()).hexdigest()[:16]
    directory = cache_root() / f"tests-{name}-{digest}"
    uv = shutil.which("uv")
    assert uv is not None

    def fill(place: Path) -> None:
        subprocess.run([uv, "venv", "-q", "--allow-existing", "--python", sys.executable, str(place)], check=True)
        argv = [uv, "pip", "install", "-q", "--python", str(place / "bin" / "python"), *packages]
        subprocess.run(argv, check=True)
        (place / "complete").touch()

    make_once(directory, "complete", fill)
    return directory / "bin" / "python"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pythons that have the packages, in which the tests' repositories are registered."""
    root = tmp_path_factory.mktemp("pythons")
    with pytest.MonkeyPatch.context() as patched:
        for family, place, register in (
            ("swesmith", "swesmith", "smith"),
            ("swebench", "swebench", "int"),
            ("multi-swe", "swebench", "multi"),
        ):
            program = root / f"registering_{place}_{register}.py"
            names = [repository.name for repository in REPOSITORIES]
            program.write_text(REGISTERED.format(names=names, family=register, command=f"{PYTEST} -v"))
            python = root / family
            python.write_text(f'#!/bin/sh\nexec {environment(place)} {program} "$@"\n')
            python.chmod(0o755)
            patched.setenv(variable_of(family), str(python))
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
    assert task.data.swe.command == f"{PYTEST} -v" == command_elsewhere(swesmith(CALCULATOR))
    assert task.data.swe.gold_patch == made(CALCULATOR).gold
    assert reversed_patch(reversed_patch(made(CALCULATOR).gold)) == made(CALCULATOR).gold
    (multi,) = tasks_of([multi_swe(CALCULATOR)], tmp_path)
    assert multi.data.prompt_text == "calculator is broken"


async def test_swebench_reads_logs_with_its_own_parsers() -> None:
    log = "test_a (app.tests.Case) ... ok\ntest_b (app.tests.Case) ... FAIL\n"
    found = await parse_elsewhere("swebench:parse_log_django", {"repo": "django/django", "version": "5.0"}, log)
    assert found == {"test_a (app.tests.Case)": "PASSED", "test_b (app.tests.Case)": "FAILED"}
    go = await parse_elsewhere("swebench:parse_log_gotest", {}, "--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n")
    assert go == {"TestA": "PASSED", "TestB": "FAILED"}


async def test_a_row_that_names_swebenchs_parser_is_scored_with_it(tmp_path: Path) -> None:
    row = {**swebench(CALCULATOR), "log_parser": "parse_log_pytest_v2"}
    (task,) = tasks_of([row], tmp_path)
    assert (await played(task, patching(made(CALCULATOR).gold))).reward == 1.0
    assert (await played(task, patching(made(CALCULATOR).half))).reward == 0.0

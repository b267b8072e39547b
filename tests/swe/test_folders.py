"""`opencode-check-tasks` on software engineering rows, and the folders that it writes of them."""

from pathlib import Path
from typing import Any

import pytest
from opencode_env.check_tasks.__main__ import write_folder

from tests.check_tasks.test_tasks import checked, kinds
from tests.support.rows import write_rows
from tests.support.sizes import size
from tests.swe.libraries import pythons
from tests.swe.playing import environment, patching, tasks_of
from tests.swe.repositories import CALCULATOR, FOREIGN_FORMS, FORMS, made, multi_swe, r2e, swelego, swesmith
from tests.task_folders.folders import folder_task
from tests.task_folders.folders import played as played_folder

pytestmark = [pytest.mark.usefixtures("sandboxes"), pytest.mark.slow]

SOUND = size((r2e,), (*FORMS, *FOREIGN_FORMS))
NAMES = ["org__calculator.12345678.bug" if form is swesmith else f"calculator-{form.__name__}" for form in SOUND]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folders of sound rows, and, in `make test-whole`, of one whose mended file lies in a cache of the agent's."""
    root = tmp_path_factory.mktemp("folders")
    leaking = {**swelego(CALCULATOR), "instance_id": "leak"}
    mended = CALCULATOR.after["calc/ops.py"] + CALCULATOR.after["calc/more.py"]
    leaking["setup"] = (
        f"mkdir -p ~/.cache/site-packages/calc && cat > ~/.cache/site-packages/calc/all.py <<'X'\n{mended}X\n"
    )
    rows = write_rows(root / "rows.jsonl", [*(form(CALCULATOR) for form in SOUND), *size([], [leaking])])
    with pytest.MonkeyPatch.context() as patched:
        for variable, python in pythons(root).items():
            patched.setenv(variable, python)
        options = ["--taskset", "opencode-swe", "--repeats", "1", "--jobs", "2", "--write-folders", str(root / "made")]
        return root / "made", checked(str(rows), *options)[1]


def test_sound_rows_have_no_finding_and_a_fix_in_a_cache_is_a_leak(written: tuple[Path, dict[str, Any]]) -> None:
    assert {report["error"] for report in written[1].values()} == {None}, written[1]
    sound: dict[str, set[str]] = {name: set() for name in NAMES}
    found = {name: kinds(report) for name, report in written[1].items()}
    assert found == {**sound, **size({}, {"leak": {"leak"}})}


@pytest.mark.parametrize("name", NAMES)
async def test_the_folder_gives_the_verdict_of_the_rubric(written: tuple[Path, dict[str, Any]], name: str) -> None:
    await assert_verdicts(written[0] / name)


async def test_a_folder_reads_logs_as_the_rows_foreign_parser_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, python in pythons(tmp_path).items():
        monkeypatch.setenv(variable, python)
    (task,) = tasks_of([multi_swe(CALCULATOR)], tmp_path)
    await assert_verdicts(await write_folder(environment(), task, tmp_path / "made"))


async def assert_verdicts(folder: Path) -> None:
    """The gold patch scores 1 in a folder, nothing and half of it 0."""
    task, found = folder_task(folder), made(CALCULATOR)
    scripts = {patching(found.gold): 1.0, "true": 0.0, patching(found.half): 0.0}
    for script, reward in scripts.items():
        trace = await played_folder(task, script)
        assert trace.reward == reward, trace.info

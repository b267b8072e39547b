"""`opencode-check-tasks` on software engineering rows, and the folders that it writes of them."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from opencode_env.check_tasks.cli import main
from opencode_env.check_tasks.write_folder import write_folder

from tests.support.sizes import size
from tests.swe.libraries import pythons
from tests.swe.playing import environment, patching, tasks_of, write_rows
from tests.swe.repositories import CALCULATOR, FOREIGN_FORMS, FORMS, made, multi_swe, r2e, swelego, swesmith
from tests.task_folders.folders import folder_task
from tests.task_folders.folders import played as played_folder

pytestmark = [pytest.mark.usefixtures("sandboxes"), pytest.mark.slow]

SOUND = size((r2e,), (*FORMS, *FOREIGN_FORMS))
NAMES = ["org__calculator.12345678.bug" if form is swesmith else f"calculator-{form.__name__}" for form in SOUND]


def checked(*arguments: str) -> dict[str, Any]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main([*arguments, "--taskset", "opencode-swe", "--repeats", "1", "--jobs", "2", "--json"])
    return {report["key"]: report for report in json.loads(said.getvalue())["reports"]}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folders of sound rows, and, in `make test-whole`, of one whose mended file lies in a cache of the agent's."""
    root = tmp_path_factory.mktemp("folders")
    leaking = {**swelego(CALCULATOR), "instance_id": "leak"}
    mended = CALCULATOR.after["calc/ops.py"] + CALCULATOR.after["calc/more.py"]
    leaking["setup"] = (
        f"mkdir -p ~/.cache/site-packages/calc && cat > ~/.cache/site-packages/calc/all.py <<'X'\n{mended}X\n"
    )
    rows = write_rows([*(form(CALCULATOR) for form in SOUND), *size([], [leaking])], root / "rows.jsonl")
    with pytest.MonkeyPatch.context() as patched:
        for variable, python in pythons(root).items():
            patched.setenv(variable, python)
        return root / "made", checked(str(rows), "--write-folders", str(root / "made"))


def test_sound_rows_have_no_finding_and_a_fix_in_a_cache_is_a_leak(written: tuple[Path, dict[str, Any]]) -> None:
    kinds = {name: {one["kind"] for one in report["findings"]} for name, report in written[1].items()}
    assert {report["error"] for report in written[1].values()} == {None}, written[1]
    sound: dict[str, set[str]] = {name: set() for name in NAMES}
    assert kinds == {**sound, **size({}, {"leak": {"leak"}})}


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

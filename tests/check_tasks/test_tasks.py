"""`opencode-check-tasks` on planted flaws, sound tasks, task directories, and on everything that ships."""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.check_tasks.__main__ import main
from opencode_env.taskset import OpenCodeTaskset, OpenCodeTasksetConfig
from opencode_env.taskset.gold import trace_for
from rollout_sandbox.podman import PodmanBackend

from tests.check_tasks.planted import FIXED, FLAWS, SOUND, TOGETHER, put, written
from tests.support.lent_containers import QuickContainer
from tests.support.places import podman_box
from tests.support.programs import finished, own_variables
from tests.support.rows import write_rows
from tests.support.sizes import WHOLE
from tests.swe.repositories import write_files
from tests.tasks.problems import CODE, CODES

pytestmark = pytest.mark.usefixtures("sandboxes")

_USUAL = ("half-for-nothing", "never", "once-only", "weak-tests", "pick-lines", "two-checks", "lacks-a-program")
PLANTED = [*TOGETHER, *(one for one in (*FLAWS, *SOUND) if WHOLE or one.name in _USUAL)]


def checked(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and reports by task of one run of the command."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main([*arguments, "--json"])
    return code, {report["key"]: report for report in json.loads(said.getvalue())["reports"]}


def kinds(report: dict[str, Any]) -> set[str]:
    return {finding["kind"] for finding in report["findings"]}


@pytest.mark.slow
def test_every_planted_flaw_is_named_and_no_sound_task_is(tmp_path: Path) -> None:
    rows, results = write_rows(tmp_path / "rows.jsonl", [one.row for one in PLANTED]), tmp_path / "results.jsonl"
    repeats = "5" if WHOLE else "1"
    code, reports = checked(str(rows), "--repeats", repeats, "--results", str(results))
    assert code == 1
    assert {report["error"] for report in reports.values()} == {None}
    unnamed = {one.name for one in PLANTED if one.kinds and not kinds(reports[one.name]) & set(one.kinds)}
    assert unnamed == set()
    assert [reports[one.name]["findings"] for one in PLANTED if not one.kinds and reports[one.name]["findings"]] == []
    told = {one.name: str(reports[one.name]["findings"]) for one in TOGETHER}
    for place in ("/app/task.json", "/app/cache.bin", "git", "/app/.git/rebase-apply/patch", "the prompt"):
        assert f"is in {place}" in told["solution-in-all-places"]
    for finding in ("is in /app/NOTES.md", "is in the names of files", "limits"):
        assert finding in told["answer-in-two-places"]
    lacking = str(reports["lacks-a-program"]["findings"])
    assert "exit code 127" in lacking
    assert "no-such-test-runner: not found" in lacking
    lines = results.read_text().splitlines()
    results.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])
    again = checked(str(rows), "--repeats", repeats, "--results", str(results))
    assert set(again[1]) == set(reports)
    assert len(results.read_text().splitlines()) == len(lines) + 1


def folder(root: Path, name: str, *, env: str = "", **files: str) -> None:
    """A task directory in Harbor's layout: a line is to be written."""
    given = {
        "task.toml": f"[verifier]\ntimeout_sec = 60\n[agent]\ntimeout_sec = 60\n[environment.env]\n{env}\n",
        "instruction.md": "Write what is wanted into /app/out.txt.",
        "tests/test.sh": "#!/bin/sh\nset -u\nwanted='seven green bottles'\n"
        'grep -qx "$wanted" /app/out.txt && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n',
        "solution/solve.sh": "#!/bin/sh\necho 'seven green bottles' > /app/out.txt\n",
    }
    write_files(root / name, {**given, **{key.replace("__", "/"): text for key, text in files.items()}})


def test_programming_problems_by_name_are_checked(tmp_path: Path) -> None:
    given = [f"{n} {7 * n + 13}\n" for n in range(6)]
    tests = {"inputs": given, "outputs": [f"{8 * n + 13}\n" for n in range(6)]}
    told = "".join(f"{one}{other}" for one, other in zip(tests["inputs"], tests["outputs"], strict=True))
    gold = CODES[0].gold

    def row(name: str, question: str, tests: dict[str, list[str]], solution: str) -> dict[str, Any]:
        info = json.dumps({"tests": json.dumps(tests)})
        return {"id": name, "question": question, "info": info, "gold": solution, CODE: 0.5}

    rows = [
        *({**one.row, "id": f"sound-{number}", "gold": one.gold} for number, one in enumerate(CODES)),
        row("sound-unicode", "Print é🙂.", {"inputs": ["x\n"], "outputs": ["é🙂\n"]}, "print('é🙂')"),
        row("wrong-gold", "Sum two numbers.", tests, "print(1)"),
        row("wrong-tests", "Sum two numbers.", tests | {"outputs": ["9\n"] * 6}, gold),
        row("told", f"Sum two numbers: {gold}\nThe tests:\n{told}", tests, gold),
        row("no-gold", "Sum two numbers.", tests, ""),
    ]
    dataset = write_rows(tmp_path / "cp.jsonl", rows)
    local = ("--env.taskset.dataset-subset", "None", "--env.taskset.dataset-split", "None")
    code, reports = checked(str(dataset), "--taskset", "opencode-cp", "--repeats", "1", *local)
    assert code == 1
    assert {name: kinds(report) for name, report in reports.items()} == {
        **{key: set() for key in ("sound-0", "sound-1", "sound-unicode")},
        **{key: {"gold-fails"} for key in ("wrong-gold", "wrong-tests")},
        "told": {"leak"},
        "no-gold": {"no-gold"},
    }
    told = str(reports["told"]["findings"])
    assert "what its tests expect is in the prompt" in told
    assert "gold file /app/answer.py is in the prompt" in told


def test_task_directories_are_checked_with_their_solutions(tmp_path: Path) -> None:
    folder(tmp_path, "sound")
    files = {"environment__.hint": "seven green bottles\n"}
    folder(tmp_path, "in-sight", env='EXPECTED = "seven green bottles"', **files)
    folder(tmp_path, "unsolved", **{"solution__solve.sh": "#!/bin/sh\nexit 3\n"})
    drawn = "[ -f /app/out.txt ] && echo 0.$(od -An -N6 -tu8 /dev/urandom | tr -d ' ') || echo 0"
    folder(tmp_path, "drawn", **{"tests__test.sh": f"#!/bin/sh\n({drawn}) > /logs/verifier/reward.txt\n"})
    code, reports = checked(str(tmp_path), "--repeats", "2")
    found = {name: kinds(report) for name, report in reports.items()}
    assert code == 1
    flaws = {"in-sight": {"leak"}, "unsolved": {"gold-fails"}, "drawn": {"gold-fails", "flaky"}}
    assert found == {"sound": set(), **flaws}
    assert "the variable EXPECTED" in str(reports["in-sight"]["findings"])
    assert "is in /app/.hint" in str(reports["in-sight"]["findings"])


def test_a_judge_that_cannot_be_asked_is_no_fault_of_the_task(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"question": "Who?", "answer": "Marie Curie"}])
    judge = ["--env.taskset.task.rubric.type", "judge", "--env.taskset.task.rubric.judge-max-retries", "0"]
    judge += ["--env.taskset.task.rubric.judge-client.base-url", "http://127.0.0.1:9/v1"]
    code, reports = checked(str(rows), "--repeats", "1", *judge)
    (report,) = reports.values()
    assert (code, report["findings"]) == (2, [])
    assert report["error"].startswith("JudgeError: judge 'gpt-5-nano' at http://127.0.0.1:9/v1 gave no reply")


def test_a_program_that_does_nothing_solves_no_problem(tmp_path: Path) -> None:
    tests = {"inputs": ["1", "2"], "outputs": ["\n", ""]}
    row = {"question": "Print nothing.", "tests": tests, "gold": "input()\nprint()"}
    sound = {**row, "question": "Print it.", "gold": "print(input())", "tests": {**tests, "outputs": ["1", "2"]}}
    rows = write_rows(tmp_path / "rows.jsonl", [row, sound])
    options = ["--env.taskset.tests-key", "tests", "--env.taskset.task.rubric.type", "code-tests"]
    _, reports = checked(str(rows), "--repeats", "1", *options)
    assert [kinds(report) for report in reports.values()] == [{"near-miss-passes"}, set()]


def test_the_shipped_samples_pass() -> None:
    code, reports = checked("--repeats", "1")
    assert [report["findings"] for report in reports.values()] == [[]] * 10
    assert code == 0


@pytest.mark.parametrize("world", ["frozen-lake", "issue-tracker", "order-desk"])
def test_the_shipped_worlds_pass(world: str, tmp_path: Path) -> None:
    taskset = ["--taskset", "opencode-simulation", f"--env.taskset.task.world={world}"]
    code, reports = checked(*taskset)
    assert [report["findings"] for report in reports.values()] == [[]] * 6
    assert code == 0
    calls = [{"tool": "move", "arguments": {"direction": "left"}}]
    bad = [{"id": "none", "seed": 1}, {"id": "wrong", "seed": 1, "info": {"gold": calls}}]
    rows = write_rows(tmp_path / "rows.jsonl", bad)
    code, reports = checked(str(rows), *taskset)
    assert code == 1
    wrong = "gold-fails" if world == "frozen-lake" else "broken"
    assert [kinds(report) for report in reports.values()] == [{"no-gold"}, {wrong}]


def test_what_vf_validate_cannot_check_here_names_the_command(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "one", **written(workdir=str(tmp_path / "work"))}])
    argv = [sys.executable, "-m", "verifiers.v1.cli.validate", "opencode-env", "--taskset.dataset", str(rows)]
    out = ["--only-gold", "--runtime.type", "subprocess", "--output-dir", str(tmp_path / "out")]
    done = finished([*argv, *out], tmp_path, own_variables())
    (results,) = tmp_path.rglob("results.jsonl")
    (row,) = map(json.loads, results.read_text().splitlines())
    assert row["reason"] == "error", done.stderr
    assert "opencode-check-tasks DATASET" in row["error"]


@pytest.mark.podman
async def test_vf_validates_hook_tries_the_gold_solution_in_a_container(tmp_path: Path, podman_image: str) -> None:
    cells = {"right": written(), "wrong": written(gold="true"), "none": written(gold=None)}
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": name, **cell} for name, cell in cells.items()])
    found = []
    for task in OpenCodeTaskset(OpenCodeTasksetConfig(dataset=str(rows))).load():
        async with podman_box(podman_image) as box:
            await task.setup(trace_for(task, vf.AgentConfig()), box)
            found.append(await task.validate(box))
    assert found == [True, False, None]


@pytest.mark.podman
def test_a_gold_solution_anywhere_in_a_container_is_found(
    tmp_path: Path, podman_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PodmanBackend, "container_class", QuickContainer)
    setup = ["rm -rf /usr/share", put("/opt/.cache/x/box.py", FIXED)]
    cells = written(gold={"/app/box.py": FIXED}, verify=["grep -q 'width \\* height' /app/box.py"], setup=setup)
    path = write_rows(tmp_path / "rows.jsonl", [{"id": "leaky", **cells, "image": podman_image}])
    code, reports = checked(str(path), "--repeats", "1", "--env.agent.runtime.type", "podman")
    assert code == 1
    told = [(finding["kind"], finding["told"]) for finding in reports["leaky"]["findings"]]
    assert {kind for kind, _ in told} == {"leak"}
    assert all("/opt/.cache/x/box.py" in where for _, where in told), told

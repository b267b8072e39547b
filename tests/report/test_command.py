"""The command: which runs a path stands for, where the page goes, and how it watches."""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from opencode_runs.errors import BadInputError
from opencode_runs.report.__main__ import main
from opencode_runs.report.writing import policy
from opencode_runs.traces.reading import find_runs

from tests.report import made
from tests.report.reading import packed, written
from tests.support.waiting import wait_until


def test_a_path_stands_for_a_run_a_training_run_or_a_folder_of_runs(tmp_path: Path) -> None:
    training = tmp_path / "training"
    for step in (2, 10, 1):
        for kind in ("train", "eval"):
            made.write_run(training / "rollouts" / f"step_{step}" / kind / "all", made.many(1))
            made.write_run(training / "rollouts" / f"step_{step}" / kind / "effective", made.many(1))
    labels = ["step 1 eval", "step 2 eval", "step 10 eval", "step 1 train", "step 2 train", "step 10 train"]
    assert [(run.label, run.series) for run in find_runs([training])] == [(one, one.split()[2]) for one in labels]
    assert [run.step for run in find_runs([training])] == [1, 2, 10, 1, 2, 10]
    for name in ("checkpoint-9", "checkpoint-10"):
        made.write_run(tmp_path / "checkpoints" / name, made.many(1))
    assert [run.label for run in find_runs([tmp_path / "checkpoints"])] == ["checkpoint-9", "checkpoint-10"]
    single = tmp_path / "checkpoints" / "checkpoint-9"
    assert [run.label for run in find_runs([single, single / "traces.jsonl"])] == ["checkpoint-9"]
    other = made.write_run(tmp_path / "others" / "checkpoint-9", made.many(1))
    assert [run.label for run in find_runs([single, other])] == ["checkpoints / checkpoint-9", "others / checkpoint-9"]
    (tmp_path / "empty").mkdir()
    for wrong in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(BadInputError, match=wrong.name):
            find_runs([wrong])


def test_the_page_stands_in_the_run_and_its_policy_allows_only_its_own_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made.write_run(tmp_path / "<b>&amp;", made.many(3))
    assert main([str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    text = (run / "report.html").read_text()
    assert "<title>&lt;b&gt;&amp;amp; · opencode-report</title>" in text
    assert text.count("Content-Security-Policy") == 1
    assert policy().startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy()
    assert "http" not in policy()
    assert main([str(run), "--max-mb", "0.000001"]) == 0
    assert "3 rollouts are listed without their conversation" in capsys.readouterr().err
    assert main([str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err == f'opencode-report: run "{tmp_path}/nothing" does not exist\n'


def test_a_run_without_rollouts_is_a_page_and_no_run_is_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    traces = tmp_path / "run" / "traces.jsonl"
    for content in ("", "\n\n"):
        traces.write_text(content)
        assert written(tmp_path / "run", page=tmp_path / "page.html")["rows"] == []
    monkeypatch.chdir(tmp_path)
    for place in (traces, "run/traces.jsonl"):
        assert main([str(tmp_path / "run"), "-o", str(place)]) == 2
        assert "is a run that it would show" in capsys.readouterr().err
    assert traces.read_text() == "\n\n"
    assert main([str(tmp_path / "run"), "-o", str(tmp_path)]) == 2

    def no_room() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    assert main([str(tmp_path / "run")]) == 2
    assert "TMPDIR can name a folder" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("programs")
def test_watching_rewrites_the_page_when_the_run_has_grown(tmp_path: Path) -> None:
    run = made.write_run(tmp_path / "run", made.many(2))
    page = tmp_path / "page.html"
    argv = [sys.executable, "-m", "opencode_runs.report", str(run), "-o", str(page), "--watch"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(page.exists)
            assert len(packed(page, "index")["rows"]) == 2
            made.write_run(run, made.many(5))
            wait_until(lambda: len(packed(page, "index")["rows"]) == 5)
        finally:
            process.terminate()


@pytest.mark.usefixtures("programs")
def test_a_bundle_holds_page_configuration_log_and_versions_without_keys(tmp_path: Path) -> None:
    run = made.write_run(tmp_path / "run", made.many(2))
    key = "sk-" + "a1B2" * 10
    for name, text in (
        ("configs/resolved/eval.json", json.dumps({"key": key, "env": {"agent": {"harness": {"version": "1.2.3"}}}})),
        ("logs/attempt_1/eval.log", f"used {key}"),
    ):
        (run / name).parent.mkdir(parents=True)
        (run / name).write_text(text)
    assert main(["bundle", str(run)]) == 0
    with zipfile.ZipFile(run / "bundle.zip") as bundle:
        found = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert {*found} == {"report.html", "versions.json", "configuration.json", "logs/attempt_1-eval.log"}
    assert not [name for name, text in found.items() if key in text]
    assert found["logs/attempt_1-eval.log"].startswith("used ")
    versions = json.loads(found["versions.json"])
    assert all(versions[name] for name in ("verifiers", "opencode-runs", "python", "system"))
    assert versions["run"] == {"verifiers": "0.4.0", "agent": "opencode-env", "pinned": "1.2.3", "ran": "1.18.33"}
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    assert versions["commit"].startswith(commit.stdout.strip())


@pytest.mark.usefixtures("programs")
def test_the_page_is_opened_in_a_browser_where_there_is_one(tmp_path: Path) -> None:
    run = made.write_run(tmp_path / "a run", made.many(2))
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/opened\n')
    browser.chmod(0o755)
    argv = [sys.executable, "-m", "opencode_runs.report", str(run), "--open"]

    def opened(**environment: str) -> str:
        done = subprocess.run(argv, env={"PATH": "/nowhere", **environment}, capture_output=True, text=True, check=True)
        assert done.stdout == f"{run}/report.html\n"
        return done.stderr

    assert opened(BROWSER=str(browser)) == ""
    assert (tmp_path / "opened").read_text() == f"{tmp_path.as_uri()}/a%20run/report.html\n"
    assert "--open found no browser here: copy " in opened()
    assert "BROWSER" in opened()

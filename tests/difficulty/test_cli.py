"""The command itself: answers, exit codes, one line per problem."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opencode_runs.difficulty.__main__ import main
from PIL import Image

from tests.difficulty.lines import Line, attempts, episode, trace, write_run

Output = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [*attempts("easy", 1, 1), *attempts("hard", 0, 0), *attempts("mid", 1, 0, task_id="the middle")]
    return write_run(tmp_path / "run", lines)


@pytest.fixture
def rated(tmp_path: Path) -> Path:
    path = tmp_path / "rated.parquet"
    rows = [{"question": f"q{c}", "avg_reward": c / 4, "attempts": 4, "passes": c} for c in range(5)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def answer(capsys: Output, *arguments: str | Path) -> Any:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def problem(capsys: Output, code: int, *arguments: str | Path) -> str:
    """The one line on stderr of a command that has to end with `code`."""
    try:
        found = main(list(map(str, arguments)))
    except SystemExit as exit_:
        found = int(str(exit_.code))
    assert found == code
    [line] = capsys.readouterr().err.splitlines()
    return line


TORN = "1 line could not be read (line 2: not whole JSON); the last line is cut off"
FAILED = episode("a", trace(ok=False, errors=[{"type": "SandboxError"}]))


def test_rate_prints_hardest_tasks_first(run: Path, capsys: Output) -> None:
    assert main(["rate", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["small", "3", "3", "6"]
    assert [line.split()[0] for line in lines[-3:]] == ["the", "the", "the"]
    assert "hard" in lines[-3]
    assert "the middle (mid)" in lines[-2]
    assert "easy" in lines[-1]


def test_rate_as_json_has_every_figure(run: Path, capsys: Output) -> None:
    [source] = answer(capsys, "rate", run)["sources"]
    middle = next(row for row in source["rows"] if row["key"] == "mid")
    assert (middle["avg_reward"], middle["pass_at"], middle["mean_turns"]) == (0.5, {"1": 0.5, "2": 1.0}, 1.0)
    assert middle["reward_stderr"] == pytest.approx(0.5)


def test_rate_shows_two_models_side_by_side(tmp_path: Path, run: Path, capsys: Output) -> None:
    other = write_run(tmp_path / "other", attempts("mid", 1, 1, 0, 0, model="large"))
    assert main(["rate", str(run), str(other)]) == 0
    header, *rows = capsys.readouterr().out.split("\n\n")[1].splitlines()
    assert header.split() == ["task", "large", "small"]
    assert "0.50 ±0.29 (n=4)" in rows[0]
    assert "0.50 ±0.50 (n=2)" in rows[0]


def test_errors_are_shown_apart_and_named(tmp_path: Path, capsys: Output) -> None:
    assert main(["rate", str(write_run(tmp_path / "run", [*attempts("a", 1), FAILED]))]) == 0
    assert "small: not counted as attempts: SandboxError 1" in capsys.readouterr().out


def test_an_empty_run_is_nothing_usable(tmp_path: Path, capsys: Output) -> None:
    run = write_run(tmp_path / "run", [])
    assert main(["rate", str(run)]) == 1
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.endswith("the run has no episode yet")
    assert error == "opencode-difficulty rate: the runs hold no episode"


@pytest.mark.parametrize(
    ("lines", "tail", "code", "words"),
    [
        ([FAILED], b"", 1, "no attempt"),
        (attempts("a", 1), b'{"id": "x', 0, TORN),
        ([episode("a", trace()), *attempts("a", 1)], b"", 0, "small: sampling settings differ and are pooled: "),
        (
            [episode("a", trace(info={"scorers": {"judge": version}})) for version in ("1", "2")],
            b"",
            0,
            'small: versions of the scorer "judge" differ and are pooled: 1, 2',
        ),
        (
            [episode("a", trace(info=info)) for info in ({}, {"scorers": {"judge": "2"}})],
            b"",
            0,
            "small: scorers with a version differ and are pooled: none, judge",
        ),
    ],
    ids=["only errors", "a line cut off", "sampling that differs", "scorers that differ", "scorers without a version"],
)
def test_what_is_wrong_with_a_run_is_one_line(
    lines: list[Line], tail: bytes, code: int, words: str, tmp_path: Path, capsys: Output
) -> None:
    assert words in problem(capsys, code, "rate", write_run(tmp_path / "run", lines, tail))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rate", "nowhere"], 'run "nowhere" does not exist'),
        (["rate"], "required: RUN (see"),
        (["frobnicate"], "invalid choice"),
        (["rate", "x", "--threshold", "high"], "--threshold"),
        (["show", "nowhere.parquet"], "does not exist"),
        (["recommend", "x.parquet", "-G", "1"], "at least 2"),
        (["recommend", "x.parquet", "-G", "8", "-p", "1.5"], "between 0 and 1"),
        (["join", "x.jsonl", "nowhere", "-o", "missing/out.parquet"], 'folder "missing" does not exist'),
        (["join", "x.jsonl", "nowhere", "-o", "out.parquet", "--taskset", "question_key"], "OPTION=COLUMN"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], words: str, capsys: Output) -> None:
    assert words in problem(capsys, 2, *arguments)


def test_show_split_and_recommend_answer(tmp_path: Path, rated: Path, capsys: Output) -> None:
    assert answer(capsys, "show", rated)["bands"]["medium"]["rows"] == 3
    files = answer(capsys, "split", rated, "-o", tmp_path / "bands")["files"]
    assert {band: file["rows"] for band, file in files.items()} == {"hard": 1, "medium": 3, "easy": 1, "unrated": 0}
    found = answer(capsys, "recommend", rated, "-G", "8")
    assert (found["min_avg_reward"], found["max_avg_reward"], found["kept"]) == (0.25, 0.75, 3)


def test_a_plot_without_matplotlib_says_what_to_install(
    tmp_path: Path, rated: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the import system finds where the extra is not installed.
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    line = problem(capsys, 2, "show", rated, "--png", tmp_path / "plot.png")
    assert line.endswith("--png needs matplotlib: install opencode-runs[plot]")
    assert not (tmp_path / "plot.png").exists()


def test_a_plot_is_a_png(tmp_path: Path, rated: Path) -> None:
    assert main(["show", str(rated), "--png", str(tmp_path / "plot.png")]) == 0
    with Image.open(tmp_path / "plot.png") as picture:
        picture.load()
        assert (picture.format, picture.size) == ("PNG", (800, 450))
        assert len(picture.convert("RGB").getcolors(maxcolors=1 << 20) or []) > 4
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".parquet"] == ["plot.png"]


def test_a_file_in_which_nothing_was_rated_is_nothing_usable(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "rated.parquet"
    pq.write_table(pa.table({"avg_reward": pa.array([None, None], pa.float64())}), path)
    assert problem(capsys, 1, "show", path, "--png", tmp_path / "plot.png").endswith("is rated")
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize("command", ["", "rate", "join", "show", "split", "recommend"])
def test_help_has_examples(command: str, capsys: Output) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"] if command else ["--help"])
    assert f"opencode-difficulty {command}" in capsys.readouterr().out.split("examples:" if command else "the loop:")[1]


@pytest.mark.usefixtures("programs")
def test_the_module_runs_and_a_reader_that_leaves_early_is_no_error(run: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "opencode_runs.difficulty", "rate", str(run), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0
    assert b"Traceback" not in errors

"""The command line: a newcomer's mistakes, its help, its JSON, and the same command as a module."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from opencode_runs.trainable.__main__ import main

from tests.difficulty.lines import episode, write_run
from tests.trainable.doctored import group, trace


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "outputs" / "typo")]) == 2
    assert capsys.readouterr().err == f'opencode-trainable: run "{tmp_path}/outputs/typo" does not exist\n'


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        (".", 0, '/empty/traces.jsonl": the run has no episode yet'),
        ("empty", 1, "the runs hold no episode yet: wait for the first rollout to end"),
        ("tasks.jsonl", 2, "holds no verifiers episode"),
    ],
)
def test_what_is_no_run_or_an_empty_one_is_told(
    place: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "first", group(1))
    write_run(tmp_path / "empty", [])
    (tmp_path / "tasks.jsonl").write_text('{"question": "?"}\n')
    assert main([str(tmp_path / place)]) == code
    assert said in capsys.readouterr().err


def test_a_run_that_is_still_being_written_is_read_as_far_as_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write_run(tmp_path / "run", group(0, 1), tail=json.dumps(episode("a", trace())).encode()[:-100])
    assert main([str(place), "--check"]) == 0
    printed = capsys.readouterr()
    assert "the last line is cut off" in printed.err
    assert "2 of 2 train, of 2 episodes" in printed.out


@pytest.mark.parametrize("options", [["--max-tokens", "0"], ["--allow", "everything"], []])
def test_wrong_usage_ends_in_one_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_table_has_a_line_for_each_trace_and_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = write_run(tmp_path / "run", [*group(0, 1), *group(1, key="other")])
    assert main([str(place), "--rows", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["task", "trace", "seat", "turns"]
    assert lines[1].split()[2:] == ["agent", "2", "1", "5", "3", "100%", "-", "0.00", "-0.500", "yes"]
    assert lines[3] == "… 1 more traces (all with --rows 0 or --json)"
    assert "samples  3 of 3 branches, 24 tokens: 9 train (38%), 100% of them with a logprob; 0 forks" in lines
    assert "groups   1 of 2 have a spread of rewards" in lines


def test_a_task_s_name_does_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = write_run(tmp_path / "run", group(0, 1, key="\x1b[2J\x9b1m\nforged  line"))
    for options in ([], ["--json"]):
        assert main([str(place), *options]) == 0
        seen = capsys.readouterr()
        assert not {"\x1b", "\x9b"} & set(seen.out + seen.err)
        assert "\nforged" not in seen.out
    assert "\x1b[2J\x9b1m\nforged  line" in json.loads(seen.out)["traces"][0].values()


@pytest.mark.usefixtures("programs")
def test_json_is_the_whole_report_and_says_whether_it_is_usable(tmp_path: Path) -> None:
    place = write_run(tmp_path / "run", group(0, 1))
    command = [sys.executable, "-m", "opencode_runs.trainable", str(place), "--json", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["usable"] is True
    assert report["summary"]["trained_tokens"] == 6
    assert [found["advantage"] for found in report["traces"]] == [-0.5, 0.5]
    assert report["findings"] == []


def test_help_names_every_finding_and_both_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert "--allow KIND accepts one" in printed
    assert "  logprob-values  " in printed
    assert "exit codes: 0 answered" in printed

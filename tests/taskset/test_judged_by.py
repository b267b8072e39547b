"""A row whose judge runs the agent's code is warned about when it is loaded, once, and no other is."""

from pathlib import Path

import pytest
from opencode_env.samples import SAMPLES_PATH
from opencode_env.taskset.mapping import agent_code_in, judged_by_its_exit

from tests.support.sample_rows import sample_rows
from tests.taskset.files import tasks, write_jsonl

DECIDED_BY_THE_AGENT = [
    "pytest -q",
    "cd /app && python3 -m pytest tests",
    "python -m unittest test_stats",
    "python3 -c 'import solution; assert solution.f(1) == 2'",
    'python3 -c "from roman import to_roman\nassert to_roman(4)"',
    "python3 -I -c 'import sys\nsys.path.append(\".\")\nfrom stats import mean'",
    "python3 /app/main.py | grep -q 42",
    "sh /app/rotate.sh /tmp/d",
    "./run.sh",
    "cd /app && ./solve && test -f out",
    '[ "$(node /app/index.js)" = 5 ]',
    "npm test",
    "cargo test --quiet",
    "go test ./...",
    "make check",
]
DECIDED_BY_THE_JUDGE = [
    "true",
    "test -f /app/answer.txt",
    "[ \"$(tr -d '[:space:]' < /app/answer.txt)\" = 19 ]",
    "python3 -I -c 'import json, sys\nsys.exit(json.load(open(\"/app/report.json\")) != 5)'",
    "grep -q done /app/report.md",
    "cat /app/made",
    "diff /app/out.txt /opt/expected.txt",
    "got=$(run-agent-code -- python3 -m pytest); [ \"$got\" = '' ]",
]


@pytest.mark.parametrize("command", DECIDED_BY_THE_AGENT)
def test_a_command_that_runs_the_agents_code_is_told(command: str) -> None:
    assert agent_code_in(command)


@pytest.mark.parametrize("command", [*DECIDED_BY_THE_JUDGE, *(c for sample in sample_rows() for c in sample.verify)])
def test_a_command_that_only_looks_at_what_the_agent_left_is_not(command: str) -> None:
    assert agent_code_in(command) is None
    assert not judged_by_its_exit(command)


@pytest.mark.parametrize(
    "command",
    [
        *("run-agent-code -- pytest", "cd /app && run-agent-code python3 x.py"),
        *("if run-agent-code -- ./a; then true; fi", "! run-agent-code -- false"),
    ],
)
def test_an_exit_code_that_is_always_zero_is_no_verdict(command: str) -> None:
    assert judged_by_its_exit(command)


def test_a_dataset_is_warned_about_once_with_the_row_and_what_to_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"question": f"{n}", "verify": ["true", f"pytest tests/{n}"]} for n in range(3)]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    assert len(tasks(path)) == 3
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"{path} row 1:" in warning
    assert "'pytest'" in warning
    assert "run-agent-code -- COMMAND" in warning


def test_the_shipped_samples_are_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    assert len(tasks(SAMPLES_PATH)) == 10
    assert not caplog.records

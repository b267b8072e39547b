"""Parsers of other packages, in a process of their own: here packages that the test makes stand for them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from opencode_rubrics import ScoringError
from opencode_rubrics.swe.foreign_parsers import command_elsewhere, foreign_of, lacking, variable_of
from opencode_rubrics.swe.reading_process import ParserFailed, read_foreign
from pydantic import JsonValue

from tests.swe.repositories import write_files

pytestmark = pytest.mark.usefixtures("programs")

PACKAGES = {
    "swebench/__init__.py": "",
    "swebench/types.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass TestSpec:\n    instance_id: str\n"
    "    image: str\n    eval_script_list: list\n    repo: str\n    version: str\n    FAIL_TO_PASS: list\n"
    "    PASS_TO_PASS: list\n",
    "swebench/harness/__init__.py": "",
    "swebench/harness/log_parsers.py": "def read(log, spec):\n    if log == 'stuck':\n        raise ValueError(log)\n"
    "    return {f'{spec.repo} {line}': 'PASSED' for line in log.split()}\n"
    "PARSER_REGISTRY = {'parse_log_x': read}\n",
    "swesmith/__init__.py": "",
    "swesmith/profiles.py": "class Profile:\n    def log_parser(self, log):\n        print('said')\n"
    "        return {log: 'FAILED'}\n\n    def get_test_cmd(self, row):\n"
    "        return 'test ' + row['instance_id'], []\n\n\n"
    "class registry:\n    get = staticmethod({'o__r.1': Profile()}.__getitem__)\n"
    "    get_from_inst = staticmethod(lambda row: registry.get(row['instance_id'].rsplit('.', 1)[0]))\n",
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, PACKAGES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for family in ("swebench", "swesmith"):
        monkeypatch.setenv(variable_of(family), "/usr/bin/python3")


def read(parser: str, options: dict[str, JsonValue], log: str) -> dict[str, str]:
    return read_foreign(foreign_of(parser, options), log)


def test_a_log_is_read_by_the_parser_that_the_row_names() -> None:
    found = read("swebench:parse_log_x", {"repo": "o/r"}, "a b")
    assert found == {"o/r a": "PASSED", "o/r b": "PASSED"}
    assert read("swesmith:o__r.1", {}, "t") == {"t": "FAILED"}
    assert command_elsewhere({"instance_id": "o__r.1.bug"}) == "test o__r.1.bug"


def test_a_log_that_breaks_its_parser_holds_nothing_and_a_missing_parser_is_an_error() -> None:
    assert read("swebench:parse_log_x", {}, "stuck") == {}
    with pytest.raises(ParserFailed, match="KeyError"):
        read("swebench:parse_log_y", {}, "")
    with pytest.raises(ScoringError, match=r"opencode-rubrics\[multi-swe\]"):
        read("multi-swe:o/r", {}, "")
    with pytest.raises(ValueError, match="swesmith cannot say it"):
        command_elsewhere({"instance_id": "x.y"})
    with pytest.raises(ValueError, match="no parser"):
        lacking("nothing:of")


CONVERT = Path(__file__).parents[2] / "scripts" / "convert_swe_bench.py"
OLD = {
    "swebench/harness/constants.py": "MAP_REPO_VERSION_TO_SPECS = {'a/b': {'1': 0}}\nFAIL_ONLY_REPOS = {'a/b'}\n",
    "swebench/harness/log_parsers.py": "def parse_log_x(log, spec): ...\nMAP_REPO_TO_PARSER = {'a/b': parse_log_x}\n",
    "swebench/harness/test_spec/__init__.py": "",
    "swebench/harness/test_spec/test_spec.py": "from types import SimpleNamespace as Spec\n\n\n"
    "def make_test_spec(row, namespace):\n    return Spec(instance_image_key=namespace, eval_script='run')\n",
}


def test_rows_are_converted_by_lines_of_json_and_what_swebench_does_not_know_is_said(
    tmp_path: Path, programs: None
) -> None:
    write_files(tmp_path, OLD)
    known = {"instance_id": "x", "repo": "a/b", "version": "1", "problem_statement": "one\u2028two\u0085three\x0cfour"}
    rows = [known, {**known, "instance_id": "y", "repo": "getmoto/moto"}, {**known, "instance_id": "z", "version": "2"}]
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    command = [sys.executable, str(CONVERT), "--namespace", "n", str(old), str(new)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    (made,) = [json.loads(line) for line in new.read_text(encoding="utf-8").split("\n") if line]
    fields = {"image": "n", "eval_script": "run", "log_parser": "parse_log_x", "eval_type": "fail_only"}
    assert made == {**known, **fields}
    said = done.stderr
    assert "y is left out: swebench does not know the repository getmoto/moto" in said
    assert "z is left out: swebench does not know version 2 of a/b" in said
    assert "1 of 3 rows are converted" in said

"""Parsers of other packages, in a process of their own: here packages that the test makes stand for them."""

from pathlib import Path

import pytest
from opencode_rubrics import ScoringError
from opencode_rubrics.swe.foreign_parsers import command_elsewhere, lacking, parse_elsewhere, variable_of

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


async def test_a_log_is_read_by_the_parser_that_the_row_names() -> None:
    found = await parse_elsewhere("swebench:parse_log_x", {"repo": "o/r"}, "a b")
    assert found == {"o/r a": "PASSED", "o/r b": "PASSED"}
    assert await parse_elsewhere("swesmith:o__r.1", {}, "t") == {"t": "FAILED"}
    assert command_elsewhere({"instance_id": "o__r.1.bug"}) == "test o__r.1.bug"


async def test_a_log_that_breaks_its_parser_holds_nothing_and_a_missing_parser_is_an_error() -> None:
    assert await parse_elsewhere("swebench:parse_log_x", {}, "stuck") == {}
    with pytest.raises(ScoringError, match="KeyError"):
        await parse_elsewhere("swebench:parse_log_y", {}, "")
    with pytest.raises(ScoringError, match=r"opencode-rubrics\[multi-swe\]"):
        await parse_elsewhere("multi-swe:o/r", {}, "")
    with pytest.raises(ValueError, match="swesmith cannot say it"):
        command_elsewhere({"instance_id": "x.y"})
    with pytest.raises(ValueError, match="no parser"):
        lacking("nothing:of")

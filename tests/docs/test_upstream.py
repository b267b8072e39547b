"""Reports for other projects: each case still shows what its report says of the versions that are installed."""

import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "upstream.md"
CASES = dict(re.findall(r"^## (\w+): .*?^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(("library", "says"), [("renderers", "refused\n"), ("verifiers", "lost\n")])
def test_a_case_shows_its_defect(programs: None, library: str, says: str) -> None:
    done = subprocess.run([sys.executable, "-c", CASES[library]], capture_output=True, text=True, check=False)
    assert done.stdout == says, done.stderr

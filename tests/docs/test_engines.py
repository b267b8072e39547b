"""The page of real engines has the table of what they answered, and each cell says yes, no, or not tried."""

import re

from scripts.engines.answers import answers, on_page, table
from scripts.engines.installation import VERSIONS


def test_the_page_has_what_the_engines_answered() -> None:
    known = answers()
    assert on_page() == table(known)
    cells = [cell for row in known.values() for cell in row.values()]
    assert [cell for cell in cells if not re.match(r"(yes|no: .|not tried: .)", cell)] == []
    assert {engine for row in known.values() for engine in row} <= {f"vLLM {version}" for version in VERSIONS}

#!/usr/bin/env python3
"""Makes the pictures of the report page that the README shows: `uv run python scripts/report_pictures.py`.

Needs chromium (`apt-get install chromium`). The rollouts are those of the tests of the report.
"""

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from opencode_runs.report.__main__ import main as write_page  # noqa: E402

from tests.report import made  # noqa: E402
from tests.support.browser import chromium  # noqa: E402

IMAGES = ROOT / "docs" / "images"


def main() -> None:
    """Write both pictures."""
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        outcomes = made.every_outcome()
        lines = [
            *made.rich(),
            *outcomes[:6],
            *list(made.many(240, skill=0.6, tasks=30))[len(outcomes) :],
        ]  # no id twice
        run = made.write_run(Path("runs", "sample"), lines)
        page = Path(name, "report.html")
        assert write_page([str(run), "-o", str(page)]) == 0
        with chromium(Path(name, "profile")) as browser:
            browser.size(1180, 1100)
            browser.open(page)
            browser.picture(IMAGES / "report-run.png", width=1180, height=1100)
            browser.size(1180, 1180, dark=True)
            browser.go("#/rollouts")
            browser.until("document.querySelectorAll('tr.rollout').length > 0")
            rows = "[...document.querySelectorAll('a.open')]"
            browser.go(browser.run(f"{rows}.find((one) => one.innerText === 'ask-the-diary').getAttribute('href')"))
            browser.picture(IMAGES / "report-rollout.png", width=1180, height=1180, dark=True)


if __name__ == "__main__":
    main()

"""What stands in a page: its index and its rollouts, as its script unpacks them."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

from opencode_runs.report.__main__ import main


def written(*runs: Path, page: Path, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Write the page of some runs; its index."""
    assert main([*map(str, runs), "-o", str(page), *options]) == 0
    return packed(page, "index")


def packed(page: Path, name: str) -> dict[str, Any]:
    """A value of the page."""
    form = r'<script type="text/plain" id="index">([^<]*)</script>' if name == "index" else rf"(?m)^{name[1:]} (\S+)$"
    (text,) = re.findall(form, page.read_text())
    value: dict[str, Any] = json.loads(text if text[0] == "{" else gzip.decompress(base64.b64decode(text)))
    return value

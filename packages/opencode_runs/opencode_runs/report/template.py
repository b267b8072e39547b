"""The page around the data: its script and style, and a policy that lets nothing else run and nothing be fetched."""

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files

SCRIPTS = ("data.js", "text.js", "charts.js", "overview.js", "rollouts.js", "conversation.js", "rollout.js", "main.js")
"""In order, as one script."""
FOOT = b"</script></body></html>\n"
"""What stands behind the rollouts."""


@cache
def _file(name: str) -> str:
    return (files("opencode_runs.report") / "page" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(map(_file, SCRIPTS)) + "\n})();\n"


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def policy() -> str:
    """The content policy: our script and our style by their digests, pictures that stand in the page, nothing else."""
    return (
        f"default-src 'none'; script-src {_digest(_script())}; style-src {_digest(_file('page.css'))}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def head(index: bytes, *, title: str) -> bytes:
    """Everything before the rollouts."""
    values = {
        "policy": html.escape(policy()), "title": html.escape(title), "style": _file("page.css"),
        "index": index.decode(), "script": _script(),
    }  # fmt: skip
    # In one go: what a run holds can look like a place of the template.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], _file("page.html")).encode("utf-8", "replace")

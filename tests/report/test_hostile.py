"""Whatever a model, a tool or a dataset wrote: the browser runs none of it and fetches nothing."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from opencode_runs.report import writing

from tests.report import made
from tests.report.reading import written
from tests.support.browser import Browser
from tests.support.sizes import size

OUT = "http://127.0.0.1:9/out"
FRAGMENTS = (
    "</script><script>window.owned = 1</script>",
    f"<img src={OUT} onerror='window.owned = 1'>",
    f"<iframe src={OUT}></iframe><svg onload=owned=1>",
    f"<link rel=stylesheet href={OUT}></style>",
    f"<!-- ]]> <style>@import url({OUT})</style>",
    f"--><meta http-equiv=refresh content='0;url={OUT}'><base href=//x>",
    f"![x]({OUT}) [x](javascript:window.owned=1) [x]({OUT})",
    "`'\"><script>owned=1</script>",
    "${owned=1}{{owned=1}}{{index}}{{script}}",
    "javascript:window.owned=1",
    "data:text/html,<script>owned=1</script>",
    "\u202e\u2066\u200f\u2028\u2029\U0001f600",
    "\x00\x07\x1b[31m\x1b]8;;javascript:owned=1\x07x\x1b]8;;\x07\x1b[38;5;9;48;2;1mx",
    "__proto__",
    "constructor",
    "toString",
    "```\n</pre>\n```",
    "| a | b |\n| - | - |\n| <b> | </td> |",
    "#/r/../../x?y=z",
    "%E0%A4%A",
    "\\u003c/script>\\",
    "-" * 300,
    "1e999\r\n",
)
SVG = f"data:image/svg+xml,<svg xmlns='x' onload='owned=1'><image href='{OUT}'/></svg>"
FRAME = frozenset({"role", "version", "verifiers"})
"""Fields of a trace that verifiers writes, and whose words say what it is."""


def spoilt(value: Any, text: str) -> Any:
    """The value with every string of it replaced, but for those of the frame."""
    if isinstance(value, str):
        return text
    if isinstance(value, list):
        return [spoilt(one, text) for one in value]
    if isinstance(value, dict):
        return {name: one if name in FRAME else spoilt(one, text) for name, one in value.items()}
    return value


def hostile(number: int, text: str) -> made.Line:
    """An episode that says one thing wherever something can be said."""
    main = made.trace(number, 0.0, turns=4, tokens=True)
    main["info"]["simulation"] = made.LEDGER
    main["info"]["branch"] = {"trace_id": text, "turn": 2, "digest": text}
    main["info"]["logprobs"] = [{"node": 2, "tokens": [text, "x"], "logprobs": [-1.0, -2.0]}]
    others = (made.sub(number, made.trace(number, turns=4)), made.failed(number, "E"))
    traces = [spoilt(one, text) for one in (main, *others)]
    for place, trace in enumerate(traces):
        trace["id"] = f"{text}{number}.{place}"
        trace["agent"]["name"] = ("agent", "sub", text)[place]
        trace["metrics"] |= {text: 1.0}
        trace["rewards"] |= {text: {"score": 0.5, "weight": 1.0}}
        trace["info"] |= {text: {text: [text]}}
    nodes = traces[0]["nodes"]
    picture = {"type": "image_url", "image_url": {"url": SVG}}
    nodes[1]["message"]["content"] = [{"type": "text", "text": text}, picture, {"type": text, text: text}]
    edit = {"filePath": text, "oldString": text, "newString": text * 2}
    given = ({"command": text, text: text}, edit, {"patch": text}, {"filePath": text, "content": text})
    nodes[2]["message"]["tool_calls"] = [
        {"id": text, "name": text, "arguments": one} for one in (text, *map(json.dumps, given))
    ]
    episode: made.Line = spoilt(made.episode(number, "task"), text)
    return episode | {"id": f"{text}{number}", "traces": traces, "ok": True}


def test_nothing_of_a_trace_runs_and_nothing_is_fetched(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    texts = [*FRAGMENTS, *("".join(draw.sample(FRAGMENTS, 5)) for _ in range(5)), "x" * size(200_000, 1_000_000)]
    run = made.write_run(tmp_path / "<b>run", [hostile(number, text) for number, text in enumerate(texts)])
    page = tmp_path / "page.html"
    monkeypatch.setattr(writing, "PLAIN_BYTES", 1 << 30)
    index = written(run, page=page)
    assert len(index["rows"]) == len(texts)
    browser.open(page)
    before = browser.run("[document.scripts.length, document.title]")
    places = ["#/", "#/rollouts", "#/keys"]
    for number, row in enumerate(index["rows"]):
        base = browser.run(f"'#/r/' + encodeURIComponent({json.dumps(row['id'])})")
        parts = ("timeline", "scoring", "trainer", "task", "sub/1.0")
        places += [base, *(f"{base}/{part}" for part in parts[: 5 if number % 3 == 0 else 2])]
        if number % 6 == 0:
            places.append(browser.run(f"'#/task/' + encodeURIComponent({json.dumps(row['key'])})"))
    for place in places:
        browser.go(place)
        assert "No such rollout" not in browser.run("document.querySelector('h1').innerText"), place
        assert browser.run(FOREIGN) == [], place
    assert browser.run("[window.owned, ({}).owned]") == [None, None]
    assert browser.run("[document.scripts.length, document.title]") == before
    assert browser.said == []
    assert browser.asked == [page.resolve().as_uri()]

    monkeypatch.setattr(writing, "PLAIN_BYTES", 0)
    packed = tmp_path / "packed.html"
    assert written(run, page=packed)["rows"] == index["rows"]
    browser.open(packed)
    browser.go("#/rollouts")
    assert browser.run("document.querySelectorAll('tr.rollout').length") == len(texts)


FOREIGN = """[...document.querySelectorAll('iframe, object, embed, base, form, img, [onload], [onerror]'),
  ...document.querySelectorAll('link, main script, main style, main meta'),
  ...[...document.links].filter((one) => !one.getAttribute('href').startsWith('#'))].map((one) => one.outerHTML)"""
"""What only somebody else's markup could have made."""

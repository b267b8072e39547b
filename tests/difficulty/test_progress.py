"""The progress line: silent for short work, one place on a terminal, few lines in a log."""

import io

import pytest
from opencode_runs import progress
from opencode_runs.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(out: io.StringIO) -> str:
    with Progress("reading", 4_000_000, "MB", scale=1e6, out=out) as line:
        for _ in range(4):
            line.update(1_000_000)
    return out.getvalue()


def test_short_work_prints_nothing() -> None:
    assert work(io.StringIO()) == ""
    assert work(Terminal()) == ""


def test_a_log_gets_whole_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    [line] = work(io.StringIO()).splitlines()
    assert line.startswith("reading  25%  1 MB")


def test_a_terminal_gets_one_line_redrawn_and_removed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.0)
    drawn = work(Terminal())
    assert "\n" not in drawn
    assert "reading 100%  4 MB" in drawn
    assert drawn.endswith("\r\x1b[K")

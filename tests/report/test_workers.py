"""Any number of processes writes the same page."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from opencode_runs.errors import BadInputError, WorkerDiedError
from opencode_runs.report import listing, writing
from opencode_runs.report.listing import Workers, processors
from opencode_runs.report.writing import write_page
from opencode_runs.traces.reading import find_runs

from tests.report import made
from tests.report.reading import packed
from tests.trainable import doctored


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of every kind, with lines that are broken, empty, repeated, longer than a chunk, and not at an end yet."""
    folder = tmp_path_factory.mktemp("runs")
    many = list(made.many(90, tasks=20))
    long = made.trace(501)
    long["nodes"][3]["message"]["content"] = "word " * 30_000
    prompted = [made.trace(number) for number in range(601, 613)]
    for trace in prompted:
        trace["nodes"][0]["message"] = {"role": "system", "content": "Be brief. " * 300}
    lines = [*many, made.episode(501, "long", long), *many[40:50]]
    lines += [made.episode(601 + number, "told", trace) for number, trace in enumerate(prompted)]
    tail = b'\n  \n{"id": 3}\nnot JSON\n{"id": "half a li'
    return [
        made.write_run(folder / "rich", [*made.rich(), *made.rich()]),
        made.write_run(folder / "outcomes", made.every_outcome()),
        made.write_run(folder / "many", lines),
        doctored.run(folder / "doctored", doctored.trace(logprobs=None, nodes=[]), doctored.sub()),
        made.write_run(folder / "broken", made.many(30, tasks=5), tail=tail),
    ]


@pytest.mark.parametrize("megabytes", [25.0, 0.15])
def test_it_is_the_same_page_byte_for_byte(
    runs: list[Path], megabytes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "CHUNK_BYTES", 30_000)

    def page(processes: int) -> tuple[dict[str, Any], str]:
        place = tmp_path / f"{processes}.html"
        write_page(find_runs(runs), place, max_mb=megabytes, processes=processes)
        index = packed(place, "index")
        assert index.pop("written")
        return index, re.sub(r'(<script type="text/plain" id="index">)[^<]*', r"\1", place.read_text())

    alone = page(1)
    assert page(3) == alone
    index, text = alone
    assert [len([row for row in index["rows"] if row["run"] == number]) for number in (2, 4)] == [103, 30]
    assert any("could not be read" in line for line in index["runs"][4]["warnings"])
    assert any(finding["flaw"] == "repeated" for finding in index["runs"][0]["findings"])
    assert len(re.findall(r"(?m)^(?:\d+|[0-9a-f]{32}) H4sI\S+$", text)) > (100 if megabytes > 1 else 20)
    assert (index["left_out"] > 0) == (megabytes < 1)


def test_results_come_in_order_and_none_is_begun_before_what_it_follows() -> None:
    with Workers(3, lambda item: (item, os.getpid())) as some:
        taken: list[int] = []

        def item(number: int) -> int:
            assert len(taken) >= number // 2
            return number * number

        pids = set()
        for result, pid in some.results(40, item, lambda number: number // 2):
            taken.append(result)
            pids.add(pid)
    assert taken == [number * number for number in range(40)]
    assert os.getpid() not in pids
    assert len(pids) <= 3
    assert 1 <= processors() <= listing.MAX_PROCESSES


def test_what_a_process_raises_is_raised_here_and_one_that_dies_is_said(tmp_path: Path) -> None:
    def work(item: str) -> str:
        if item == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError(item)

    with Workers(2, work) as some, pytest.raises(ValueError, match="wrong"):
        list(some.results(4, lambda _: "wrong", lambda _: 0))
    with Workers(2, work) as some, pytest.raises(WorkerDiedError):
        list(some.results(4, lambda _: "die", lambda _: 0))
    run = made.write_run(tmp_path / "run", made.many(3))
    found = find_runs([run])
    (run / "traces.jsonl").unlink()
    with pytest.raises(BadInputError, match="cannot read traces"):
        write_page(found, tmp_path / "page.html", max_mb=1.0, processes=2)


def test_without_further_processes_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refused)
    with Workers(2, lambda item: item * 2) as some:
        assert list(some.results(3, lambda number: number, lambda _: 0)) == [0, 2, 4]


def test_a_line_that_is_another_one_by_the_second_look_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made.write_run(tmp_path / "run", made.many(4))
    found, listed = find_runs([run]), listing.list_run

    def renamed(*arguments: Any) -> Any:
        """Lists the run, and puts rollouts with other ids and as many bytes into its lines."""
        done, file = listed(*arguments), run / "traces.jsonl"
        for row in (row for rollout in done.rollouts for row in rollout.rows):
            file.write_text(file.read_text().replace(row.id, "#" * len(row.id)))
        return done

    monkeypatch.setattr(writing, "list_run", renamed)
    assert write_page(found, tmp_path / "page.html", max_mb=1.0).left_out == 4

"""The figures on the page are those that the other commands print, to the digit."""

import json
import random
from pathlib import Path

import pytest
from opencode_runs.difficulty.__main__ import main as difficulty
from opencode_runs.difficulty.rate import figures, rate
from opencode_runs.report.writing import compare, interval
from opencode_runs.trainable.__main__ import main as trainable

from tests.report import made
from tests.report.reading import packed, written
from tests.trainable import doctored


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of every kind; one has a half-written last line, one is another environment's."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        made.write_run(folder / "rich", made.rich()),
        made.write_run(folder / "outcomes", made.every_outcome(), tail=b'{"id": "half a li'),
        made.write_run(folder / "many", made.many(300, tasks=20)),
        doctored.run(folder / "doctored", doctored.trace(logprobs=None, nodes=[]), doctored.sub()),
    ]


def test_difficulty_and_trainable_print_what_the_page_says(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = written(*runs, page=tmp_path / "page.html")
    assert [run["label"] for run in index["runs"]] == ["rich", "outcomes", "many", "run"]
    for number, (run, shown) in enumerate(zip(runs, index["runs"], strict=True)):
        capsys.readouterr()
        difficulty(["rate", str(run), "--json"])
        printed = json.loads(capsys.readouterr().out)
        for source in shown["sources"]:
            for row in source["rows"]:
                mean = row["avg_reward"]
                band = "unrated" if mean is None else "hard" if mean < 0.2 else "easy" if mean > 0.8 else "medium"
                assert row.pop("band") == band
        assert shown["sources"] == printed["sources"]
        rows = [row for row in index["rows"] if row["run"] == number]
        counts = {"attempts": "attempt", "errors": "error", "unscored": "unscored"}
        shown_as = {name: [row["counts"] == kind for row in rows] for name, kind in counts.items()}
        for name, fits in (*shown_as.items(), ("timed_out", [row["outcome"] == "timeout" for row in rows])):
            assert sum(fits) == sum(source[name] for source in printed["sources"]), name
        trainable([str(run), "--json"])
        printed = json.loads(capsys.readouterr().out)
        assert shown["trainable"] == printed["summary"]
        assert shown["usable"] == printed["usable"]
        assert shown["findings"] == printed["findings"]
        assert shown["groups"] == [{k: v for k, v in group.items() if k != "run"} for group in printed["groups"]]
        traces = {trace["trace"]: trace for trace in printed["traces"]}
        for row in rows:
            if row["id"] in traces:
                trace = traces[row["id"]]
                names = {"advantage": "advantage", "trained": "trained_tokens", "unused": "unused_because"}
                assert {one: row[one] for one in names} == {one: trace[name] for one, name in names.items()}
                assert row["findings"] == sorted(trace["findings"])


def test_each_outcome_has_a_row_and_its_conversation(runs: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    index = written(runs[1], page=page)
    outcomes = {row["task"]: row["outcome"] for row in index["rows"]}
    assert {f"fails-with-{kind}": kind for kind in made.OUTCOMES}.items() <= outcomes.items()
    assert outcomes["stops-by-agent_timeout"] == "timeout"
    assert outcomes["stops-by-scoring_timeout"] == "scoring_timeout"
    assert outcomes["stops-by-max_turns"] == "ok"
    assert outcomes["has-no-trace"] == "EnvError"
    assert "the last line is cut off" in index["runs"][0]["warnings"][0]
    row = next(row for row in index["rows"] if row["task"] == "fails-with-ProviderError")
    detail = packed(page, f"d{row['detail']}")
    assert detail["traces"][0]["errors"][0]["traceback"].startswith("Traceback")
    assert len(detail["traces"][0]["nodes"]) == 7


def test_two_runs_are_compared_over_the_tasks_that_both_rated(tmp_path: Path) -> None:
    small = made.write_run(tmp_path / "small", made.many(200, skill=0.3, tasks=20))
    large = made.write_run(tmp_path / "large", made.many(180, skill=0.7, tasks=18))
    index = written(small, large, page=tmp_path / "page.html")
    (found,) = index["comparisons"]
    means = [{row["key"]: row["avg_reward"] for row in run["sources"][0]["rows"]} for run in index["runs"]]
    differences = [means[1][key] - means[0][key] for key in means[1]]
    assert found["tasks"] == 18
    assert found["mean"] == pytest.approx(sum(differences) / 18)
    assert 0 < found["low"] < found["mean"] < found["high"]
    assert set(found["won"]) == {key for key in means[1] if means[1][key] > means[0][key]}
    same = {row.key: row for row in figures(rate([small])).sources[0].rows}
    equal = compare(same, same)
    assert equal is not None
    assert (equal["mean"], equal["low"], equal["high"], equal["won"], equal["lost"]) == (0, 0, 0, [], [])
    assert compare(same, {}) is None
    assert interval([0.5]) == (None, None)


def test_the_rollouts_fit_into_the_room_they_are_given(tmp_path: Path) -> None:
    draw = random.Random(0)

    def long(number: int) -> made.Line:
        trace = made.trace(number)
        trace["nodes"][3]["message"]["content"] = "".join(map(chr, draw.choices(range(0x4E00, 0x7000), k=60_000)))
        return made.episode(number, "long", trace)

    run = made.write_run(tmp_path / "run", map(long, range(1, 21)))
    pages = {mb: tmp_path / f"{mb}.html" for mb in ("25", "0.2", "0.02")}
    found = {mb: written(run, page=page, options=("--max-mb", mb)) for mb, page in pages.items()}
    assert found["25"]["cut"] == found["25"]["left_out"] == 0
    assert found["0.2"]["cut"] > 20 * 50_000
    assert found["0.2"]["left_out"] == 0
    assert 0 < found["0.02"]["left_out"] < 20
    bare = pages["0.02"].stat().st_size
    assert pages["0.2"].stat().st_size < bare + 200_000 < pages["25"].stat().st_size
    shown = packed(pages["0.2"], f"d{found['0.2']['rows'][0]['detail']}")
    assert "characters left out" in shown["traces"][0]["nodes"][3]["message"]["content"]


def test_what_tells_most_has_room_first(tmp_path: Path) -> None:
    lines = [made.episode(number, f"task-{number % 4}", made.trace(number, 1.0)) for number in range(40)]
    lines.append(made.episode(50, "task-1", made.failed(50, "EnvError")))
    lines.append(made.episode(51, "task-2", made.trace(51, 0.0)))
    page = tmp_path / "page.html"
    index = written(made.write_run(tmp_path / "run", lines), page=page, options=("--max-mb", "0.03"))
    assert 0 < index["left_out"] < 38
    kept = {row["id"] for row in index["rows"] if row["detail"] is not None}
    # Each outcome of each task has a first attempt: four that passed, one that failed, one without a reward.
    assert {f"{number:032x}" for number in (0, 1, 2, 3, 50, 51)} <= kept
    assert len(kept) == 42 - index["left_out"]


def test_a_reward_of_another_type_is_an_error_to_the_page_and_to_difficulty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made.write_run(tmp_path / "loose", [made.episode(1, "t", made.trace(1, "1.0"))])  # type: ignore[arg-type]
    shown = written(run, page=tmp_path / "page.html")["runs"][0]["sources"]
    capsys.readouterr()
    assert difficulty(["rate", str(run), "--json"]) == 1
    (source,) = json.loads(capsys.readouterr().out)["sources"]
    assert shown[0]["causes"] == source["causes"] == {"it cannot be read": 1}
    assert shown[0]["attempts"] == source["attempts"] == 0


@pytest.mark.parametrize("tokens", [10**400, -(10**400), -1])
def test_a_number_that_no_run_has_is_a_damaged_trace_to_each_command(
    tokens: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [made.episode(1, "t", made.trace(1)), made.episode(2, "t", made.trace(2, num_total_tokens=tokens))]
    run = made.write_run(tmp_path / "run", lines)
    index = written(run, page=tmp_path / "page.html")
    assert len(index["rows"]) == 2
    (source,) = index["runs"][0]["sources"]
    capsys.readouterr()
    assert difficulty(["rate", str(run), "--json"]) == 0
    (rated,) = json.loads(capsys.readouterr().out)["sources"]
    assert source["attempts"] == rated["attempts"] == 1
    assert source["mean_tokens"] == rated["mean_tokens"] == 1080.0
    assert trainable([str(run), "--check"]) == 1
    assert "types (1)" in capsys.readouterr().out


@pytest.mark.parametrize("message", ["word " * 1000, "x" * 5000, "It failed.\n  Do that."])
def test_the_message_of_an_error_is_whole_or_says_that_it_goes_on(tmp_path: Path, message: str) -> None:
    error = {"type": "SandboxError", "message": message}
    run = made.write_run(tmp_path / "run", [made.episode(1, "t", errors=[error], ok=False)])
    (row,) = written(run, page=tmp_path / "page.html")["rows"]
    whole = " ".join(message.split())
    assert row["message"] == whole or (row["message"].endswith(" …") and whole.startswith(row["message"][:-2]))
    assert {*row["message"].removesuffix(" …").split()} <= {*whole.split(), "x" * 600}

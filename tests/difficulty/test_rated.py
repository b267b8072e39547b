"""Show, split and recommend: what is read from a joined file."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opencode_runs.difficulty.rate import Band, Thresholds
from opencode_runs.difficulty.rated import (
    RatedFile,
    RecommendFigures,
    recommend,
    recommend_text,
    show,
    show_text,
    split,
)
from opencode_runs.errors import BadInputError, NothingUsableError

FLOATS = st.one_of(st.none(), st.just(math.nan), st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0]), st.floats(-1, 2))


def rated_file(path: Path, rewards: list[float | None], **columns: list[Any]) -> Path:
    table = pa.table({"question": [f"q{i}" for i in range(len(rewards))], "avg_reward": rewards, **columns})
    pq.write_table(table.replace_schema_metadata({"kept": "yes"}), path)
    return path


def outcomes_file(path: Path, outcomes: list[tuple[int, int]]) -> Path:
    rewards: list[float | None] = [passes / attempts if attempts else None for passes, attempts in outcomes]
    attempts = [attempts for _, attempts in outcomes]
    return rated_file(path, rewards, attempts=attempts, passes=[passes for passes, _ in outcomes])


def recommended(path: Path, column: str = "avg_reward", **changes: Any) -> RecommendFigures:
    return recommend(RatedFile(path, column), **({"group": 8, "probability": 0.5} | changes))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(rewards=st.lists(FLOATS, min_size=1, max_size=40))
def test_every_row_is_in_one_band_and_every_rated_row_in_one_bin(tmp_path: Path, rewards: list[float | None]) -> None:
    path = rated_file(tmp_path / "rated.parquet", rewards)
    answer = show(RatedFile(path), Thresholds(0.2, 0.8), first=3)
    rated = [reward for reward in rewards if reward is not None and not math.isnan(reward)]
    assert sum(band.rows for band in answer.bands.values()) == len(rewards) == answer.rows
    assert sum(answer.counts) == len(rated) == answer.rated
    assert answer.bands[Band.MEDIUM].rows == sum(0.2 <= reward <= 0.8 for reward in rated)
    assert answer.bands[Band.UNRATED].rows == len(rewards) - len(rated)
    for low, high, count in zip(answer.edges, answer.edges[1:], answer.counts, strict=False):
        assert count >= sum(low + 1e-6 < reward < high - 1e-6 for reward in rated)
    assert show_text(answer).count("\n") > 10


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(rewards=st.lists(FLOATS, min_size=1, max_size=40))
def test_split_keeps_every_row_once_in_its_band(tmp_path: Path, rewards: list[float | None]) -> None:
    path = rated_file(tmp_path / "rated.parquet", rewards)
    thresholds = Thresholds(0.2, 0.8)
    split(RatedFile(path), thresholds, tmp_path / "bands", force=True)
    found: Counter[str] = Counter()
    for band in Band:
        part = pq.read_table(tmp_path / "bands" / f"{band}.parquet")
        assert part.schema.metadata[b"kept"] == b"yes"
        for row in part.to_pylist():
            found[row["question"]] += 1
            reward = row["avg_reward"]
            assert thresholds.band(None if reward is None or math.isnan(reward) else reward) is band
    assert found == Counter(f"q{i}" for i in range(len(rewards)))


def test_split_overwrites_nothing_without_force(tmp_path: Path) -> None:
    rated = RatedFile(rated_file(tmp_path / "rated.parquet", [0.5]))
    (tmp_path / "bands").mkdir()
    (tmp_path / "bands" / "easy.parquet").write_text("precious")
    with pytest.raises(BadInputError, match="--force"):
        split(rated, Thresholds(), tmp_path / "bands", force=False)
    assert [path.name for path in (tmp_path / "bands").iterdir()] == ["easy.parquet"]


def test_split_never_writes_over_its_input(tmp_path: Path) -> None:
    path = rated_file(tmp_path / "hard.parquet", [0.5])
    with pytest.raises(BadInputError, match="is the input"):
        split(RatedFile(path), Thresholds(), tmp_path, force=True)
    assert pq.read_table(path).num_rows == 1


def test_bands_that_cross_are_refused() -> None:
    with pytest.raises(BadInputError, match="swap"):
        Thresholds(0.8, 0.2)


def test_the_band_keeps_the_tasks_whose_groups_are_likely_mixed(tmp_path: Path) -> None:
    path = outcomes_file(tmp_path / "rated.parquet", [(c, 8) for c in range(9)] + [(0, 0)])
    answer = recommended(path, probability=0.6)
    assert (answer.min_avg_reward, answer.max_avg_reward) == (1 / 8, 7 / 8)
    assert (answer.useful, answer.kept, answer.unrated) == (7, 7, 1)
    assert "--env.taskset.min-avg-reward 0.125" in answer.flags
    assert "max_avg_reward = 0.875" in answer.toml
    assert answer.flags in recommend_text(answer)


def test_few_attempts_leave_doubt_that_many_remove(tmp_path: Path) -> None:
    few = recommended(outcomes_file(tmp_path / "few.parquet", [(0, 4), (1, 4)]), probability=0.42)
    many = recommended(outcomes_file(tmp_path / "many.parquet", [(0, 64), (32, 64)]), probability=0.42)
    assert [found.useful for found in few.outcomes] == [False, True]
    assert [found.useful for found in many.outcomes] == [False, True]
    assert few.outcomes[0].high > 0.9 > 0.5 > many.outcomes[0].high


def test_a_task_between_useful_ones_is_kept_by_the_band_but_not_called_useful(tmp_path: Path) -> None:
    path = outcomes_file(tmp_path / "rated.parquet", [(1, 8), (4, 8), (0, 0)])
    rewards = [0.1, 0.9, 0.5]
    table = pq.read_table(path).set_column(1, "avg_reward", pa.array(rewards))
    table = table.set_column(2, "attempts", pa.array([8, 8, 64])).set_column(3, "passes", pa.array([3, 4, 0]))
    pq.write_table(table, path)
    answer = recommended(path)
    assert (answer.useful, answer.kept) == (2, 3)


def test_no_useful_task_is_said_with_the_best_there_is(tmp_path: Path) -> None:
    path = outcomes_file(tmp_path / "rated.parquet", [(0, 64), (64, 64)])
    with pytest.raises(NothingUsableError, match=r"the best has 0\.\d+ \((0|64) of 64 passed\)"):
        recommended(path, probability=0.9)


def test_a_file_without_attempts_is_refused_by_recommend(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match='lacks the columns "attempts" and "passes"'):
        recommended(rated_file(tmp_path / "rated.parquet", [0.5]))


def test_a_prefixed_column_brings_its_own_attempts(tmp_path: Path) -> None:
    path = rated_file(tmp_path / "rated.parquet", [0.0], small_avg_reward=[0.5], small_attempts=[8], small_passes=[4])
    answer = recommended(path, column="small_avg_reward")
    assert answer.outcomes[0].passes == 4
    assert "difficulty-key small_avg_reward" in answer.flags


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("rated.parquet", "difficulty", "rated columns: avg_reward, small_avg_reward"),
        ("rated.parquet", "label", "holds string, not numbers"),
        ("none.parquet", "avg_reward", "does not exist"),
        ("text.parquet", "avg_reward", "not a Parquet file that can be read"),
    ],
)
def test_what_is_no_column_of_numbers_in_a_parquet_file_is_one_clear_error(
    tmp_path: Path, name: str, column: str, said: str
) -> None:
    rated_file(tmp_path / "rated.parquet", [0.5], small_avg_reward=[0.5], label=["0.5"])
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(BadInputError, match=said):
        RatedFile(tmp_path / name, column)


@pytest.mark.parametrize("attempts", [1, 2])
def test_attempts_that_would_teach_whatever_their_outcome_do_not_tell(tmp_path: Path, attempts: int) -> None:
    few = [(0, attempts), (attempts, attempts)]
    with pytest.raises(
        NothingUsableError, match=rf"more attempts than {attempts}, .* too wide to tell .*several times"
    ):
        recommended(outcomes_file(tmp_path / "few.parquet", few))
    found = recommended(outcomes_file(tmp_path / "mixed.parquet", [*few, (2, 8), (6, 8)]))
    assert (found.useful, found.untold, found.kept) == (2, 2, 2)
    assert "2 of 4 tasks teach (0 unrated, 2 with too few attempts to tell)" in recommend_text(found)

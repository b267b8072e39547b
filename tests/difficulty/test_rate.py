"""Reading whole runs: places, broken files, several models, bounded memory."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opencode_runs.difficulty.rate import AttemptSource, Rating, figures, rate
from opencode_runs.errors import BadInputError

from tests.difficulty.lines import attempts, episode, trace, write_run

SMALL = AttemptSource("probe", "small")


def rewards(rating: Rating, source: AttemptSource = SMALL) -> dict[str, float | None]:
    return {key: tally.avg_reward for key, tally in rating.sources[source].tasks.items()}


def test_episodes_are_grouped_by_task_and_model(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [*attempts("a", 1, 0), *attempts("b", 0), *attempts("a", 1, model="large")])
    rating = rate([run])
    assert rewards(rating) == {"a": 0.5, "b": 0.0}
    assert rewards(rating, AttemptSource("probe", "large")) == {"a": 1.0}


def test_several_runs_of_one_model_are_pooled(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(i), attempts("a", i)) for i in range(2)]
    assert rewards(rate(runs)) == {"a": 0.5}


def test_a_run_named_twice_is_read_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", attempts("a", 1, 0))
    assert rate([run, run / "traces.jsonl", tmp_path / "run" / ".." / "run"]).attempts == 2


def test_a_copied_run_counts_once_and_says_so(tmp_path: Path) -> None:
    lines = attempts("a", 1, 0)
    rating = rate([write_run(tmp_path / "run", lines), write_run(tmp_path / "copy", lines)])
    assert rating.attempts == 2
    assert [run.duplicates for run in rating.runs] == [0, 2]


def test_the_same_task_of_different_envs_stays_apart(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [episode("a", trace(1)), episode("a", trace(0), env={"id": "other"})])
    assert {source.env for source in rate([run]).sources} == {"probe", "other"}


def test_a_cut_off_last_line_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", attempts("a", 1, 0), tail=json.dumps(episode("a", trace()))[:-20].encode())
    [report] = rate([run]).runs
    assert (report.episodes, report.torn, report.truncated_end) == (2, 1, True)
    assert report.complaints == ["line 3: not whole JSON"]


def test_a_whole_last_line_without_newline_counts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", attempts("a", 1), tail=json.dumps(episode("a", trace(0))).encode())
    assert rewards(rate([run])) == {"a": 0.5}


def test_a_broken_line_in_the_middle_is_counted_and_named(tmp_path: Path) -> None:
    tail = b'{"half\n\n' + json.dumps(episode("a", trace(0))).encode()
    [report] = rate([write_run(tmp_path / "run", attempts("a", 1), tail)]).runs
    assert (report.episodes, report.torn, report.truncated_end) == (2, 1, False)


def test_traces_of_another_schema_refuse_the_run_with_file_and_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [*attempts("a", 1), episode("a", trace(version=2))])
    with pytest.raises(BadInputError, match=r'run/traces.jsonl" line 2: trace schema 2, this command reads 1'):
        rate([run])


def test_a_file_of_another_format_and_a_path_that_does_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="holds no verifiers episode"):
        rate([write_run(tmp_path, [{"prompt": "hello", "reward": 1.0}])])
    with pytest.raises(BadInputError, match="does not exist"):
        rate([tmp_path / "nowhere"])


def test_of_a_folder_of_runs_all_are_read(tmp_path: Path) -> None:
    for number, name in enumerate(("one", "two")):
        write_run(tmp_path / name, attempts("a", number))
    assert rewards(rate([tmp_path])) == {"a": 0.5}
    for number in (1, 2):
        write_run(tmp_path / "trained" / f"step_{number}", attempts("a", 1))
    with pytest.raises(BadInputError, match=r'evaluated 2 steps \(step_1, step_2\).* for instance ".*/trained/step_2"'):
        rate([tmp_path / "trained"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="neither a run nor a folder of runs"):
        rate([tmp_path / "empty"])


def test_an_empty_run_has_no_source(tmp_path: Path) -> None:
    assert rate([write_run(tmp_path / "run", [])]).sources == {}


def test_of_a_prime_rl_run_the_whole_eval_is_read_and_its_effective_part_is_not(tmp_path: Path) -> None:
    lines = attempts("a", 1, 0)
    write_run(tmp_path / "rollouts" / "step_0" / "eval" / "all", lines)
    write_run(tmp_path / "rollouts" / "step_0" / "eval" / "effective", lines[:1])
    write_run(tmp_path / "rollouts" / "step_0" / "train" / "all", attempts("a", 0, 0))
    assert rewards(rate([tmp_path])) == {"a": 0.5}
    assert rewards(rate([tmp_path / "rollouts" / "step_0"])) == {"a": 0.5}


def test_of_a_prime_rl_run_with_several_eval_steps_one_has_to_be_named(tmp_path: Path) -> None:
    for step in (0, 20):
        write_run(tmp_path / "rollouts" / f"step_{step}" / "eval" / "all", attempts("a", 1))
    with pytest.raises(BadInputError, match=r"evaluated 2 steps \(step_0, step_20\)"):
        rate([tmp_path])
    assert rate([tmp_path / "rollouts" / "step_20"]).attempts == 1


@pytest.mark.parametrize("wrong", [{}, {"env": {"turns": {"keep": 3}, "taskset": "own"}}, {"num_rollouts": "many"}])
def test_an_episode_without_traces_belongs_to_the_model_of_the_saved_config(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    lines = [*attempts("a", 1), episode("a", ok=False, errors=[{"type": "EnvError"}])]
    config = {"model": "small", "env": {"id": "probe"}} | wrong
    rating = rate([write_run(tmp_path / "run", lines, config=config)])
    assert list(rating.sources) == [SMALL]
    assert rating.sources[SMALL].tasks["a"].errors == 1


def test_sampling_and_versions_are_kept_for_the_record(tmp_path: Path) -> None:
    newer = trace(verifiers={"version": "0.4.1"})
    run = write_run(tmp_path / "run", [*attempts("a", 1), episode("a", trace(), newer)])
    found = rate([run]).sources[SMALL]
    assert list(found.versions) == ["0.4.0", "0.4.1"]
    assert '{"temperature":0.7}' in found.sampling


def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    long = trace(nodes=[{"sampled": True, "message": {"role": "assistant", "content": "x" * 20_000}}])
    peaks = []
    for count in (50, 500):
        run = write_run(tmp_path / str(count), [episode(f"task-{i % 10}", long) for i in range(count)])
        tracemalloc.start()
        rate([run])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 200_000, "ten times the run may cost no more than its episodes' identities"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 1.0, None])), max_size=30))
def test_figures_account_for_every_episode(tmp_path: Path, data: list[tuple[str, float | None]]) -> None:
    run = write_run(tmp_path / "run", [episode(key, trace(reward)) for key, reward in data])
    answer = figures(rate([run]))
    counted = [row.attempts + row.errors + row.unscored for source in answer.sources for row in source.rows]
    assert sum(counted) == len(data)
    for row in (row for source in answer.sources for row in source.rows):
        scored = [reward for key, reward in data if key == row.key and reward is not None]
        assert row.attempts == len(scored)
        assert row.avg_reward == (pytest.approx(sum(scored) / len(scored)) if scored else None)

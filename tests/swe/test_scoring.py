"""Rows of every form in confined sandboxes: the gold patch scores 1, nothing and half of it 0."""

from itertools import product
from pathlib import Path

import pytest
from opencode_rubrics import ScoringError

from tests.support.sizes import WHOLE, size
from tests.swe.playing import patching, played, tasks_of
from tests.swe.prime_rules import prime_verdict
from tests.swe.repositories import CALCULATOR, FORMS, REPOSITORIES, SLUGS, STORE, made, scaleswe, swebench, swelego

pytestmark = [pytest.mark.usefixtures("sandboxes"), pytest.mark.slow]

USUAL = [(STORE, swebench), (SLUGS, scaleswe)]
"""Beside what the evaluations and the attacks play."""
CASES = [*product(REPOSITORIES, FORMS)] if WHOLE else USUAL
TIMES = 5 if WHOLE else 1


@pytest.mark.parametrize(("repository", "form"), CASES, ids=lambda one: getattr(one, "name", "") or one.__name__)
async def test_the_gold_patch_scores_one_and_half_of_it_and_nothing_zero(repository, form, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (task,), found = tasks_of([form(repository)], tmp_path), made(repository)
    scripts = [(1.0, patching(found.gold)), (0.0, patching(found.half)), (0.0, "true")]
    for reward, script in scripts[: size(2, 3)] * TIMES:
        trace = await played(task, script)
        assert trace.reward == reward, trace.info
        assert trace.info["agent_exit"][0] == 0, trace.info["agent_exit"]
        told = trace.info["swe"]
        assert bool(told["patch"]) == (script != "true")
        assert told["suite"]["recorded"]
        # Old against new: Prime's rules say the same of honest work.
        assert prime_verdict(form.__name__, form(repository), told["suite"]["log"]) == reward, told["suite"]["log"]


async def test_the_future_is_gone_and_the_work_is_there(tmp_path: Path) -> None:
    row, found = swelego(CALCULATOR), made(CALCULATOR)
    bundled = {**{name: value for name, value in row.items() if name != "archive"}, "bundle": found.bundle}
    look = (
        f"git cat-file -e {found.future} 2>/dev/null && echo future; git tag; git remote; git stash list; "
        "git for-each-ref --format='%(refname)'; git reflog; git fsck --unreachable --no-reflogs 2>/dev/null; "
        "git cat-file --batch-all-objects --batch | grep -a 'return a - b'; git log --format=%s; ls -a"
    )
    for task in tasks_of([row, {**bundled, "instance_id": "bundled"}], tmp_path):
        trace = await played(task, look) if task.data.id != "bundled" else None
        if trace is None:
            with pytest.raises(ScoringError, match="broken in an untouched sandbox too"):  # it has no pytest
                await played(task, look)
            continue
        said = trace.info["agent_exit"][1].split("\n")
        assert "future" not in said
        assert "Mend it" not in said
        assert [line for line in said if line.startswith("refs/")] == ["refs/heads/work"]
        assert "Begin" in said
        assert "calc" in said
        assert not [line for line in said if "return a - b" in line]


async def test_a_suite_that_is_broken_without_the_agent_is_an_error(tmp_path: Path) -> None:
    broken = {**swelego(CALCULATOR), "test_cmd": "no-such-runner"}
    stuck = {**swelego(CALCULATOR), "instance_id": "stuck", "test_cmd": "sleep 60", "test_timeout": 2}
    for task in tasks_of([broken, stuck], tmp_path):
        with pytest.raises(ScoringError, match="broken in an untouched sandbox too, with its gold patch"):
            await played(task, "true")

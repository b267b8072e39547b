"""Rows of every form in confined sandboxes: the gold patch scores 1, nothing and half of it 0."""

import base64
import io
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskConfig, OpenCodeTaskset, OpenCodeTasksetConfig
from opencode_rubrics import ScoringError, SweTestsConfig
from opencode_rubrics.swe import grading
from opencode_rubrics.swe.grading import Change, SuiteRun, grade, run_suite
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.reader import ReadingProcess
from rollout_sandbox.errors import ScoringTimeout
from rollout_sandbox.toolbox.bounded_file import read_bounded
from rollout_sandbox.toolbox.command import CommandResult
from rollout_sandbox.toolbox.scoring import Scoring, attach
from verifiers.v1.agent import TimeoutConfig

from tests.support.rows import write_rows
from tests.support.sizes import WHOLE, size
from tests.swe.attacks import appended
from tests.swe.playing import environment, patching, played, ran, tasks_of
from tests.swe.prime_rules import prime_verdict
from tests.swe.repositories import CALCULATOR, FORMS, REPOSITORIES, STORE, made, openswe, swebench, swelego

pytestmark = [pytest.mark.usefixtures("sandboxes"), pytest.mark.slow]

USUAL = [(STORE, swebench)]
"""Beside what the evaluations and the attacks play."""
CASES = [*product(REPOSITORIES, FORMS)] if WHOLE else USUAL


@pytest.mark.parametrize(("repository", "form"), CASES, ids=lambda one: getattr(one, "name", "") or one.__name__)
async def test_the_gold_patch_scores_one_and_half_of_it_and_nothing_zero(repository, form, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (task,), found = tasks_of([form(repository)], tmp_path), made(repository)
    scripts = [(1.0, patching(found.gold)), (0.0, patching(found.half)), (0.0, "true")]
    # In `make test-whole` five times the same for one repository in every form.
    times = size(1, 5 if repository is CALCULATOR else 1)
    for reward, script in scripts[: size(2, 3)] * times:
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
        async with environment().box(task) as box:
            said = (await ran(box, look)).stdout.split("\n")
        assert "future" not in said
        assert "Mend it" not in said
        assert [line for line in said if line.startswith("refs/")] == ["refs/heads/work"]
        assert "Begin" in said
        assert "calc" in said
        assert not [line for line in said if "return a - b" in line]


async def test_a_row_of_ones_own_without_git_is_scored_in_any_taskset(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in {"half.py": "def half(x):\n    return x\n", "old.txt": "old\n"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    test = "import unittest, half\nclass T(unittest.TestCase):\n    def test_half(self):\n"
    problem = {
        "archive": base64.b64encode(packed.getvalue()).decode(),
        "command": "python3 -m unittest -v test_half",
        "parser": "unittest",
        "fail_to_pass": ["test_half (test_half.T)"],
        "test_files": {"test_half.py": f"{test}        self.assertEqual(half.half(4), 2)\n"},
        "gold_patch": "--- a/half.py\n+++ b/half.py\n@@ -2 +2 @@\n-    return x\n+    return x // 2\n",
        "timeout": 60,
        "hidden": ["/tmp/hint"],
    }
    row = {"question": "Halve it.", "workdir": "/work", "setup": ["echo 2 > /tmp/hint"], "swe": problem}
    rows = write_rows(tmp_path / "rows.jsonl", [row])
    config = OpenCodeTasksetConfig(dataset=str(rows), task=OpenCodeTaskConfig(rubric=SweTestsConfig()))
    (task,) = OpenCodeTaskset(config).load()
    mended = await played(task, "[ -e /tmp/hint ] || sed -i 's/return x/return x \\/\\/ 2/' half.py; rm old.txt")
    told = mended.info["swe"]
    assert (mended.reward, told["changed"], told["removed"]) == (1.0, ["half.py"], ["old.txt"])
    assert (await played(task, "echo 'def half(x): return 3' > half.py")).reward == 0.0


async def test_a_log_that_tells_failures_alone_is_evidence_if_tests_ran(tmp_path: Path) -> None:
    row = swebench(CALCULATOR)
    script = row["eval_script"].replace("-rA", "-q -rf")
    (task,) = tasks_of([{**row, "eval_script": script, "eval_type": "fail_only"}], tmp_path)
    trace = await played(task, patching(made(CALCULATOR).gold))
    assert (trace.reward, trace.metrics["fail_to_pass_passed"]) == (1.0, 2.0)
    trace = await played(task, patching(made(CALCULATOR).half))
    assert (trace.reward, trace.metrics["fail_to_pass_passed"]) == (0.0, 1.0)


async def test_a_test_that_is_skipped_has_not_passed_where_an_exit_code_alone_counts(tmp_path: Path) -> None:
    (task,) = tasks_of([openswe(CALCULATOR)], tmp_path)
    skips = "import pytest\n\ndef sub(a, b):\n    pytest.skip('no')\n"
    trace = await played(task, patching(made(CALCULATOR).gold) + appended(skips))
    assert "have not passed" in trace.info["swe"]["suite"]["problem"], trace.info
    assert trace.reward == 0.0


async def test_a_suite_that_is_broken_without_the_agent_is_an_error(tmp_path: Path) -> None:
    broken = {**swelego(CALCULATOR), "test_cmd": "no-such-runner"}
    stuck = {**swelego(CALCULATOR), "instance_id": "stuck", "test_cmd": "sleep 60", "test_timeout": 2}
    for task in tasks_of([stuck, broken][: size(1, 2)], tmp_path):
        with pytest.raises(ScoringError, match="broken in an untouched sandbox too, with its gold patch"):
            await played(task, "true")


NAMES = ("setup.cfg", "conftest.py", ".python-version", "calc/conftest.py", "plain.txt", "pkg")
"""Of all kinds: `pkg` is a directory with a test and other files."""
TYPED = replace(
    CALCULATOR,
    name="typed",
    before={
        **CALCULATOR.before,
        **dict.fromkeys((*NAMES[1:5], "pkg/plain.py", "pkg/sub/plain.py", "pkg/sub/test_it.py"), "\n"),
        "setup.cfg": "[metadata]\nname = x\n",
        "read/only.py": "\n",
    },
)
OTHER_KINDS = (
    "mkdir -p $f/x/y && touch $f/x/y/z $f/w",
    "ln -s /etc $f",
    "mkfifo $f",
    "true",
    "mkdir $f",
    "ln -s calc $f",
    "echo x > $f",
)
WITH_RECORD = "import sys\n_it = next(m for n, m in sys.modules.items() if n.startswith('record_'))\n"
SEALED = (
    "_line = _it._digest((_it._KEY + {0!r}).encode()).hexdigest() + ' ' + {0!r}\n"
    "with open(_it._PATH, 'a') as _file:\n    print(_line, file=_file)\n"
)
IN_THE_PLACE = "import glob, os\n_place = os.path.dirname(glob.glob('/tmp/.*/suite')[0])\n"


async def test_a_change_of_any_kind_of_any_path_is_judged(tmp_path: Path) -> None:
    row = {**swelego(TYPED), "setup": ["chmod 555 read", "mkfifo pipe"]}
    (task,), gold = tasks_of([row], tmp_path), patching(made(TYPED).gold)
    for shift in range(size(2, len(OTHER_KINDS))):
        kinds = {name: OTHER_KINDS[(number + shift) % len(OTHER_KINDS)] for number, name in enumerate(NAMES)}
        script = "chmod 755 read; echo y > read/only.py; rm pipe; mkdir pipe; echo y > pipe/plain.py; rm -rf "
        script += " ".join(NAMES)
        trace = await played(task, gold + "".join([script, *(f"\nf={name}; {make}" for name, make in kinds.items())]))
        assert (trace.reward, trace.info["agent_exit"][0]) == (1.0, 0), (kinds, trace.info)
        assert trace.metrics["dropped_test_files"] in (3, 4, 5, 6), (kinds, trace.info)
        told = trace.info["swe"]
        assert "pipe/plain.py" in told["changed"], told
        # A test is below it, and stays.
        assert ("pkg" in told["dropped_tests"]) == (kinds["pkg"] in OTHER_KINDS[5:]), (kinds, told)
    half = await played(task, patching(made(TYPED).half) + "rm -rf setup.cfg; mkdir setup.cfg; touch setup.cfg/x")
    assert half.reward == 0.0


async def test_what_a_suite_leaves_in_its_place_neither_fails_the_scoring_nor_earns(tmp_path: Path) -> None:
    (task,) = tasks_of([swelego(CALCULATOR)], tmp_path)
    left = "for _d in ('a', 'a/b'):\n    os.mkdir(f'{_place}/{_d}')\nos.chmod(f'{_place}/a', 0)\n"
    gold = patching(made(CALCULATOR).gold)
    assert (await played(task, gold + appended(IN_THE_PLACE + left))).reward == 1.0
    other = "os.unlink(f'{_place}/log')\nos.mkdir(f'{_place}/log')\nos.chmod(_place, 0)\n"
    for code in (IN_THE_PLACE + other, WITH_RECORD + SEALED.format("{"), WITH_RECORD + SEALED.format('{"ended": []}')):
        trace = await played(task, gold + appended(code))
        assert trace.reward == 0.0, trace.info
        assert "while an untouched sandbox gives evidence" in trace.info["swe"]["problem"]


async def test_a_listing_that_outlasts_the_scoring_is_the_agents(tmp_path: Path) -> None:
    """15 GiB of holes by three hundred names; a sandbox's files may have 16."""
    (task,) = tasks_of([swelego(CALCULATOR)], tmp_path)
    script = "truncate -s 15G calc/s && for n in $(seq 300); do ln calc/s calc/s$n || exit; done"
    async with environment(timeout=TimeoutConfig(scoring=15)).box(task) as box:
        done = await ran(box, script)
        assert done.exit_code == 0, done
        with pytest.raises(ScoringTimeout) as raised:
            await box.score()
    assert raised.value.agents


class Watched(Scoring):
    """Knows whose time it is."""

    where = "nobody"

    @contextmanager
    def _is(self, whose: str, counts: AbstractContextManager[None]) -> Iterator[None]:
        before, self.where = self.where, whose
        with counts:
            yield
        self.where = before

    def agents_time(self) -> AbstractContextManager[None]:
        return self._is("agent", super().agents_time())

    @asynccontextmanager
    async def control(self) -> AsyncIterator[None]:
        with self._is("control", nullcontext()):
            async with super().control():
                yield


def _problem(task: OpenCodeTask) -> SweProblem:
    problem = task.data.model_dump()["swe"]
    return SweProblem.model_validate(problem)


async def test_reading_what_a_suite_left_is_the_agents_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A log can take the parser of another package, which knows no limit but ours, as long as it wants."""
    (task,), ask = tasks_of([swelego(CALCULATOR)], tmp_path), ReadingProcess.ask
    scoring, seen = Watched(), list[tuple[str, str]]()

    async def asked(reader: ReadingProcess, call: str, **content: Any) -> dict[str, Any]:
        seen.append((call, scoring.where))
        return await ask(reader, call, **content)

    async def read(*arguments: Any) -> Any:
        seen.append(("left", scoring.where))
        return await read_bounded(*arguments)

    monkeypatch.setattr(ReadingProcess, "ask", asked)
    monkeypatch.setattr(grading, "read_bounded", read)
    async with environment().box(task) as box:
        attach(scoring, box.runtime)
        run = await run_suite(box.runtime, _problem(task), box.workdir)
    assert run.recorded
    assert seen == [("left", "agent"), ("left", "agent"), ("judge", "agent")]


@pytest.mark.parametrize("parser", ["exit-code", "pytest"])
async def test_a_run_with_the_gold_patch_takes_no_time_of_the_scoring(
    parser: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else a run that uses up half of it and breaks off would have the gold patch's end as an error."""
    (task,) = tasks_of([swelego(CALCULATOR)], tmp_path)
    problem = _problem(task).model_copy(update={"parser": parser})
    ended = SuiteRun(ended=CommandResult("", 0, 0.0, "", "", timed_out=False), recorded=True, solved=True)
    scoring, seen = Watched(), list[str]()

    async def attempt(*_: Any, **__: Any) -> tuple[SuiteRun, str]:
        return replace(ended, problem="" if parser == "exit-code" else "it has ended early"), ""

    async def gold(*_: Any, **__: Any) -> SuiteRun:
        seen.append(scoring.where)
        return ended

    monkeypatch.setattr(grading, "_attempt", attempt)
    monkeypatch.setattr(grading, "gold_run", gold)
    change = Change(b"", b"", b"", b"", None, {})
    box: Any = None
    async with scoring.time(3600):
        graded = await grade(box, scoring, problem, "/app", change)
    assert seen == ["control"]
    assert bool(graded.blamed) == (parser == "pytest")

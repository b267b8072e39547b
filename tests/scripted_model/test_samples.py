"""The shipped sample tasks, worked on for real by the scripted solutions."""

import shutil
import time

import pytest
from opencode_env.samples import SAMPLES_PATH
from opencode_env.scripted_model.shipped_policies import load_solutions

from tests.scripted_model.box import prepared_for
from tests.support.machine import assert_no_longer
from tests.support.sample_rows import SampleRow, sample_rows

pytestmark = pytest.mark.usefixtures("sandboxes")

SAMPLES = sample_rows()
SOLUTIONS = load_solutions()
FAILED_REWARDS = {"csv-report": 0.5, "pig-latin": 0.55, "rotate-logs": 2 / 3}

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=[sample.id for sample in SAMPLES])


def test_there_are_ten_samples_with_their_own_ids_and_solutions() -> None:
    assert len({sample.id for sample in SAMPLES}) == len(SAMPLES) == 10
    assert {sample.id for sample in SAMPLES} == set(SOLUTIONS)
    assert len(SAMPLES_PATH.read_bytes().splitlines()) == 10


def test_every_sample_can_be_checked_and_no_question_holds_another() -> None:
    for sample in SAMPLES:
        assert (sample.answer is None) != (not sample.verify)
        assert not [other.id for other in SAMPLES if other is not sample and other.question in sample.question]


FORGED = """echo 'exit 0' > "$TMPDIR/status"; mkdir -p /logs/verifier
echo 1 > /logs/verifier/reward.txt; kill -9 -1"""
WITHOUT_THE_WORK = {
    "rotate-logs": [
        ("rotate.sh", ""),
        ("rotate.sh", "exit 0\n"),
        ("rotate.sh", 'rm -f "$1"/*.log\n'),
        ("rotate.sh", 'cd "$1"; rm -rf ..; mkdir ../one.log\n'),
        ("rotate.sh", FORGED),
    ],
    "pig-latin": [("pig.txt", "apple\nbanana\ncherry\nsky\n"), ("pig.txt", "appleway " * 20)],
    "csv-report": [
        ("report.json", "{}"),
        ("report.json", '{"orders": "7", "revenue": [905], "by_region": NaN, "best_product": null}'),
        ("report.json", "[" * 5000),
        ("json.py", "import sys\nsys.exit(0)\n"),
    ],
    "count-errors": [("answer.txt", "18 19 20")],
    "arithmetic-orders": [("answer.txt", "1584 or 1536")],
    "quadratic-roots": [("answer.txt", "$3\\pm\\sqrt{2}$ or $3\\pm\\sqrt{3}$")],
    "fix-median": [("stats.py", "def median(values): return max(values)\nmean = median\n")],
    "write-roman": [("roman.py", "def to_roman(number): raise ValueError\n")],
    "rename-function": [("shop/cart.py", "recalc_totals = order_total = lambda *_: 42\n")],
}
"""Files that earn nothing: of whoever has not done the work, forges a report, or shadows the library."""


@needs_bubblewrap
@each_sample
async def test_a_sample_earns_nothing_without_the_work_part_of_it_on_the_failing_path_and_all_when_solved(
    sample: SampleRow,
) -> None:
    async with prepared_for(sample) as box:
        assert await box.reward(sample) == 0
        for file, content in WITHOUT_THE_WORK.get(sample.id, ()):
            await box.write(f"/app/{file}", content)
            assert await box.reward(sample) == 0, content
            await box.begin(sample)
        await box.play(SOLUTIONS[sample.id].fail)
        assert await box.reward(sample) == pytest.approx(FAILED_REWARDS.get(sample.id, 0.0))
        await box.begin(sample)
        await box.play(SOLUTIONS[sample.id].solve)
        started = time.perf_counter()
        assert await box.reward(sample) == 1
        assert_no_longer(time.perf_counter() - started, 5)


CHEATS = {
    "ends the interpreter early": "import os\nmean = median = to_roman = None\nos._exit(0)",
    "ends it at its exit": "import atexit, os\natexit.register(os._exit, 0)",
    "patches what the checks use": (
        "import builtins, sys\nclass E:\n    __eq__ = lambda *_: True\n"
        "mean = median = to_roman = lambda *_: E()\nbuiltins.print = builtins.float = lambda *_, **__: sys.exit(0)"
    ),
    "writes the reward": (
        "import os\nos.makedirs('/logs/verifier', exist_ok=True)\n"
        "open('/logs/verifier/reward.txt', 'w').write('1')\nos._exit(0)"
    ),
    "passes any test": (
        "import sys, types\nfake = types.ModuleType('unittest')\nfake.main = lambda *_, **__: sys.exit(0)\n"
        "sys.modules['unittest'] = sys.modules['pytest'] = fake"
    ),
    "kills its judge": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "reads what is expected": (
        "import glob, os\nfor path in glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/environ'):\n"
        "    data = open(path, 'rb').read()\n"
        '    for mark in (b"want=\'", b" = \'42"):\n'
        "        if mark in data and b'glob' not in data:\n"
        '            print(data.partition(mark)[2].partition(b"\'")[0].decode())\nos._exit(0)'
    ),
}
JUDGED_BY_RUNNING = {"fix-median": "stats.py", "write-roman": "roman.py", "rename-function": "shop/cart.py"}


@needs_bubblewrap
@pytest.mark.parametrize("name", JUDGED_BY_RUNNING)
async def test_a_program_that_cheats_its_judge_earns_nothing(name: str) -> None:
    """One after the other: in the end the judge is still there for who has done the work."""
    sample = next(sample for sample in SAMPLES if sample.id == name)
    async with prepared_for(sample) as box:
        # What can be had without work: the files of a solution, without what they are for.
        await box.play(SOLUTIONS[name].solve)
        file = f"/app/{JUDGED_BY_RUNNING[name]}"
        sound = (await box.runtime.read(file)).decode()
        for cheat, program in CHEATS.items():
            await box.write(file, f"def recalc_totals(): ...\n{program}\n")
            assert await box.reward(sample) == 0, cheat
        await box.write(file, sound)
        assert await box.reward(sample) == 1


@pytest.mark.parametrize("path", ["solve", "fail"])
@each_sample
def test_solutions_take_two_to_five_turns_and_end_with_a_plain_text(sample: SampleRow, path: str) -> None:
    steps = getattr(SOLUTIONS[sample.id], path)
    assert 2 <= len(steps) <= 5
    assert [bool(step.tool_calls) for step in steps] == [*[True] * (len(steps) - 1), False]
    assert steps[-1].text
    assert not any(step.faults for step in steps)

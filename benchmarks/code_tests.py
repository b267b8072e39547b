"""What scoring by code tests costs, beside running the same programs by hand.

  cpu   CPU of `code-tests` in the confined sandbox ÷ CPU of `sh` with the same limits and standard input, per test

100 answers of one line to a few, each with 15 tests of standard input; every answer gets one sandbox apart from the
agent's, in which its tests run one after another, with processes ended and files emptied in between. Programs by hand
run one after another in one directory, without anything around them. The same answers with one test each tell what the
sandbox costs from what each test does.
Run: uv run python benchmarks/code_tests.py [--json] [--answers 100] [--tests 15]
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import verifiers.v1 as vf
from opencode_env.taskset import OpenCodeTaskData
from opencode_rubrics import CodeTest, CodeTests, CodeTestsConfig, CodeTestsRubric
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined

from benchmarks._measure import Cost, adopt_orphans, machine, measured, report

GOALS = {"cpu": 1.3}
PROGRAMS = (
    "a, b = map(int, input().split())\nprint(a * b + {n})",
    "import sys\nnumbers = [int(word) for word in sys.stdin.read().split()]\nprint(sum(numbers) * {n})",
    "from collections import Counter\ncount = Counter(input().split())\nprint(sorted(count.items()), {n})",
    "seen = [True] * 20000\nfor i in range(2, 142):\n    seen[i * i :: i] = [False] * len(seen[i * i :: i])\n"
    "print(sum(seen[2:]) + {n})",
)


def answers(count: int) -> list[str]:
    """Different programs of four kinds that alternate."""
    return [PROGRAMS[number % len(PROGRAMS)].format(n=number) for number in range(count)]


def by_hand(programs: list[str], inputs: list[str], config: CodeTestsConfig) -> tuple[Cost, list[list[str]]]:
    """The cost of all runs, and what each printed."""
    cost, printed = Cost(), []
    limits = f"ulimit -v {config.max_memory >> 10}; ulimit -u 4096 2>/dev/null; ulimit -c 0; "
    with tempfile.TemporaryDirectory() as place:
        for number, given in enumerate(inputs):
            Path(place, f"{number}.in").write_text(given)
        with measured(cost):
            for program in programs:
                Path(place, "answer.py").write_text(program)
                run = f"timeout {config.test_timeout:g} /usr/bin/python3 -I -B answer.py"
                lines = [f"{limits}{run} < {number}.in" for number in range(len(inputs))]
                outs = [subprocess.run(["sh", "-c", line], cwd=place, capture_output=True, text=True) for line in lines]
                printed.append([out.stdout for out in outs])
    return cost, printed


async def scored(programs: list[str], tests: list[CodeTests], config: CodeTestsConfig) -> tuple[Cost, int]:
    """The cost of scoring, and how many answers passed."""
    cost, passed = Cost(), 0
    rubric = CodeTestsRubric(config)
    async with provision_confined(LocalSandboxConfig(), (), name=None, env={}) as box:
        await box.write("/app/answer.py", b"")
        with measured(cost):
            for program, wanted in zip(programs, tests, strict=True):
                data = OpenCodeTaskData(idx=0, prompt="?", workdir="/app", code_tests=wanted)
                task: vf.TraceTask[Any] = vf.TraceTask(type="Task", data=data, key="k", hash="h")
                trace: vf.Trace[Any, Any, Any] = vf.Trace(task=task, agent=vf.AgentInfo(config=vf.AgentConfig()))
                await box.write("/app/answer.py", program.encode())
                await rubric.score(data, trace, box)
                passed += int(trace.reward == 1)
    return cost, passed


def main() -> None:
    """Run both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    parser.add_argument("--answers", type=int, default=100, help="programs (default: %(default)s)")
    parser.add_argument("--tests", type=int, default=15, help="tests of each (default: %(default)s)")
    options = parser.parse_args()
    adopt_orphans()
    config, programs = CodeTestsConfig(), answers(options.answers)
    inputs = [f"{number} {number + 7}\n" for number in range(options.tests)]
    hand, printed = by_hand(programs, inputs, config)
    pairs = [[CodeTest(input=given, output=out) for given, out in zip(inputs, outs, strict=True)] for outs in printed]
    tests = [CodeTests(tests=pair, total=len(pair)) for pair in pairs]
    cost, passed = asyncio.run(scored(programs, tests, config))
    single, _ = asyncio.run(scored(programs, [CodeTests(tests=one.tests[:1], total=1) for one in tests], config))
    if passed != len(programs):
        sys.exit(f"{passed} of {len(programs)} right answers passed")
    runs = options.answers * options.tests
    by_test = (cost.cpu - single.cpu) / (runs - options.answers)
    by_answer = (single.cpu / options.answers) - by_test
    detail = {
        "programs": f"{options.answers} answers with {options.tests} tests each",
        "CPU ms per test, scored, by hand": [round(one.cpu / runs * 1000, 2) for one in (cost, hand)],
        "wall ms per test, scored, by hand": [round(one.wall / runs * 1000, 2) for one in (cost, hand)],
        "CPU ms beyond the programs by hand, of each test": round((by_test - hand.cpu / runs) * 1000, 2),
        "CPU ms of the sandbox of each answer (made, ended, removed)": round(by_answer * 1000, 2),
        "ratio without the sandbox of each answer": round(by_test / (hand.cpu / runs), 3),
        **machine(),
    }
    report("code_tests", {"cpu": cost.cpu / hand.cpu}, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()

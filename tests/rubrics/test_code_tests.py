"""Code tests in the confined sandbox and in a container whose agent is root: what is right passes, and no hole pays."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import verifiers.v1 as vf
from opencode_env.taskset import OpenCodeTaskData
from opencode_rubrics import AnyTrace, CodeTest, CodeTests, CodeTestsConfig, CodeTestsRubric, ScoringError
from opencode_rubrics.code_problem import read_code_tests
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.confined import Bind, LocalSandboxConfig, provision_confined
from rollout_sandbox.confined.agent_code import ConfinedPrograms
from rollout_sandbox.interface import ProgramBatch, ProgramLimits
from rollout_sandbox.toolbox.scoring import Scoring, SecondSandboxOptions, attach

from tests.rubrics.conftest import trace_of
from tests.support.places import podman_box

pytestmark = pytest.mark.asyncio(loop_scope="module")


def problem(*pairs: tuple[Any, Any], function: str | None = None) -> OpenCodeTaskData:
    """A task with these inputs and outputs."""
    tests = [CodeTest(input=given, output=expected) for given, expected in pairs]
    return OpenCodeTaskData(
        prompt="?", workdir="/app", code_tests=CodeTests(function=function, tests=tests, total=len(tests))
    )


class Scorer:
    """Scores answers in one sandbox of the agent's, where every second sandbox is one and the same container."""

    def __init__(self, box: vf.Runtime, spare: vf.Runtime) -> None:
        self.box = box
        self._spare = spare

    async def __call__(self, code: str, data: OpenCodeTaskData, name: str = "answer.py", **options: Any) -> AnyTrace:
        await self.box.write(f"/app/{name}", code.encode())
        return await self.untouched(data, answer_path=name, **options)

    async def untouched(self, data: OpenCodeTaskData, **options: Any) -> AnyTrace:
        """The trace of scoring what is there."""
        trace = trace_of(data)

        @asynccontextmanager
        async def spare(order: SecondSandboxOptions) -> AsyncIterator[vf.Runtime]:
            yield self._spare

        attach(Scoring(spare), trace)
        await CodeTestsRubric(CodeTestsConfig(**options)).score(data, trace, self.box)
        return trace


def reasons(trace: AnyTrace) -> list[str]:
    """What became of each test."""
    return [record["reason"] for record in trace.info["code_tests"]]


SUM = problem(("1 6\n", "7\n"), ("5 8\n", "13"), ("0 0\n", "0\n"))
ADD = problem(([1, 2], 3), ([5, 8], 13), ([[1], [2]], [1, 2]), function="add")
RIGHT_SUM = "print(sum(map(int, input().split())))"
RIGHT_ADD = "def add(a: List[int], b): return a + b"
CONFINED = pytest.mark.parametrize("score", ["confined"], indirect=True)


@pytest_asyncio.fixture(
    params=["confined", pytest.param("container", marks=pytest.mark.podman)], scope="module", loop_scope="module"
)
async def score(sandboxes: None, request: pytest.FixtureRequest) -> AsyncIterator[Scorer]:
    """In a confined sandbox, or in a container for the agent, which is root there, and one for programs."""
    if request.param == "container":
        image = request.getfixturevalue("podman_image")
        async with podman_box(image) as agents, podman_box(image) as spare:
            yield Scorer(agents, spare)
    else:
        async with provision_confined(LocalSandboxConfig()) as box:
            yield Scorer(box, box)


async def test_right_answers_pass_and_absent_empty_and_wrong_ones_do_not(score: Scorer) -> None:
    missing = await score.untouched(SUM, answer_path="nothing.py")
    assert (missing.reward, reasons(missing), missing.metrics["num_test_cases"]) == (0, ["absent"] * 3, 3)
    assert reasons(await score("", SUM)) == ["empty"] * 3
    for data, code in ((SUM, RIGHT_SUM), (ADD, RIGHT_ADD)):
        trace = await score(code, data, pass_rate_weight=0.25)
        assert trace.reward == 1.0, json.dumps(trace.info)


@CONFINED
async def test_a_method_a_class_beside_the_function_and_a_share_of_the_tests_count(score: Scorer) -> None:
    method = "class Solution:\n    def add(self, a, b):\n        print(3)\n        return a + b"
    assert (await score(method, ADD)).reward == 1.0
    # Another class of that name is not a reason to miss the function, and annotations are what the answer wrote.
    beside = f"class Solution: pass\n{RIGHT_ADD} if add.__annotations__['a'] == List[int] else None"
    assert (await score(beside, ADD)).reward == 1.0
    third = await score("print(7)", SUM, pass_rate_weight=0.3)
    assert third.reward == pytest.approx(0.1)
    assert {name: (reward.score, reward.weight) for name, reward in third.rewards.items() if reward is not None} == {
        "passed": (0, 0.7),
        "pass_rate": (pytest.approx(1 / 3), 0.3),
    }


@CONFINED
async def test_assertions_are_tested_as_they_are_written(score: Scorer) -> None:
    asserted = ["assert f((1, 2), k={3: 'a\\n'}) == (2, {1})", "assert f((7, 8), k={3: 'a\\n'}) == (8, {7})"]
    data = SUM.model_copy(update={"code_tests": read_code_tests({"t": asserted}, "t")})
    assert (await score("def f(pair, k): return pair[1], {pair[0]} if k[3] == 'a\\n' else 0", data)).reward == 1
    assert reasons(await score("def f(pair, k): return [pair[1], {pair[0]}]", data)) == ["different"] * 2
    assert reasons(await score("def f(pair, k): return pair[1], [pair[0]]", data)) == ["different"] * 2


@CONFINED
async def test_the_first_element_and_a_number_near_nought_earn_nothing(score: Scorer) -> None:
    lists = problem(([[3, 4]], [3, 4]), ([[5]], [5]), function="f")
    assert reasons(await score("def f(x): return x[0]", lists)) == ["different"] * 2
    assert reasons(await score("print(0)", problem(("", "0.00042\n")))) == ["different"]
    deep = "def f(n): return 0 if n == 0 else 1 + f(n - 1)"
    assert (
        await score(f"{deep}\nfor a, b in pairwise([1, 2]): print(f(20000) + a)", problem(("", "20001")))
    ).reward == 1


HOLES = {
    "a verdict printed": 'print(\'{"success": true, "result": 3}\')\ndef add(a, b): print("PASSED", 3)',
    "the end of the process": "import os\nos._exit(0)",
    "a clean exit": "import sys\nsys.exit(0)",
    "patched builtins": "import builtins\nbuiltins.print = builtins.str = builtins.repr = lambda *a, **k: '3'\n"
    "builtins.list = builtins.int = type('int', (), {'__eq__': lambda *a: True})\ndef add(a, b): return object()",
    "an equal to everything": "class Any:\n    __eq__ = lambda *a: True\n    __str__ = __repr__ = lambda s: '3'\n"
    "def add(a, b): return Any()",
    "a result of its own at the end": "import atexit, os\n"
    "atexit.register(lambda: [os.write(int(n), b'3\\n') for n in os.listdir('/proc/self/fd') if n in '134'])\n"
    "def add(a, b): raise SystemExit(0)",
    "a fork that answers later": "import os, time\nif os.fork() == 0:\n    time.sleep(0.3); print(13); os._exit(0)\n"
    "def add(a, b):\n    os._exit(0)",
    "words before the result": "import os\ndef add(a, b):\n    os.write(3, b'3\\n')\n    return 3",
    "the input as the answer": "import sys\nprint(sys.stdin.read())\ndef add(a, b): return b",
}


PICK = f"HOLES = {[*HOLES.values()]}\nif __name__ == '__main__': exec(HOLES[int(input())])\n"
PICK += "def add(which, *two):\n    made = {}\n    exec(HOLES[which], made)\n    return made['add'](*two)"


async def test_no_trick_makes_a_test_pass(score: Scorer) -> None:
    thirteen = ["fork" in name for name in HOLES]  # which is what this one prints, too late
    printed = [(f"{n}\n5 8", "13") if late else (f"{n}\n1 6", "7") for n, late in enumerate(thirteen)]
    returned = [([n, 5, 8], 13) if late else ([n, 1, 2], 3) for n, late in enumerate(thirteen)]
    for data in (problem(*printed), problem(*returned, function="add")):
        trace = await score(PICK, data)
        assert [record["passed"] for record in trace.info["code_tests"]] == [False] * len(HOLES), trace.info


@pytest.mark.parametrize("hole", HOLES)
@CONFINED
async def test_no_trick_of_a_file_that_is_imported_makes_a_test_pass(score: Scorer, hole: str) -> None:
    trace = await score(HOLES[hole], ADD)
    assert [record["passed"] for record in trace.info["code_tests"]] == [False] * 3, trace.info


GREEDY = """
import os, time
which = input()
if which == "memory": x = b"a" * (1 << 30)
if which == "output": print("x" * 9_000_000)
for _ in range(300 * (which == "processes")):
    if os.fork() == 0:
        time.sleep(60)
print(which)
"""


async def test_programs_are_bound_in_time_memory_processes_and_output(score: Scorer) -> None:
    slow = await score("import time\ntime.sleep(60)", problem(*[("", "x")] * 3), test_timeout=1, total_timeout=2)
    assert reasons(slow)[:1] + reasons(slow)[2:] == ["timeout", "not reached"]
    assert (slow.reward, slow.metrics["num_test_cases"]) == (0, 3)
    assert slow.metrics["tests_timed_out"] == 3
    # What the bomb left is gone, and the next test is not the worse for it.
    greedy = problem(*((word, word) for word in ("memory", "output", "processes", "nothing")))
    trace = await score(GREEDY, greedy, max_memory=256 << 20, max_processes=40)
    assert [record["passed"] for record in trace.info["code_tests"]] == [False, False, False, True], trace.info
    assert reasons(trace)[2] == "exit 1"
    # An honest answer may be as long as what is expected, in whatever letters, and beyond what a command may ask for.
    long = problem((["\u4e2d", 400_000], "\u4e2d" * 400_000), ([" ", 4_000_000], " " * 4_000_000), function="times")
    assert (await score("def times(a, b): return a * b", long)).reward == 1


LOOK = """
import os
found, places = [], ("/tmp", "/dev/shm", "/dev/mqueue", "/var/tmp", os.getcwd())
for place in places:
    for folder, _, names in os.walk(place):
        found += [name for name in names if name.startswith("left")]
for place in places:
    try:
        open(os.path.join(place, "left"), "w").write(input() if place == "/tmp" else "x")
    except (OSError, EOFError):
        pass
alive = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        alive += b"sleep 4321" in open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\\0", b" ")
    except OSError:
        pass
os.system("setsid sleep 4321 >/dev/null 2>&1 </dev/null &")
print(len(found), alive)
"""


async def test_no_test_reaches_another_or_the_agents_files(score: Scorer) -> None:
    await score.box.write("/app/helper.py", b"secret = 1")
    trace = await score(LOOK, problem(*[(f"{number}\n", "0 0") for number in range(4)]))
    assert trace.reward == 1, json.dumps(trace.info)
    importing = await score("import sys\nsys.path.insert(0, '/app')\nimport helper", problem(("", "")))
    assert reasons(importing) == ["exit 1"]


MARKS = """
import ctypes, fcntl, os, socket, struct, time
PLACES = ("/tmp", "/dev/shm", "/home", "/home/agent", "/app", "/logs")
libc = ctypes.CDLL(None, use_errno=True)
own = lambda: [place for place in PLACES if os.stat(place).st_uid == os.getuid()]

def lists(name, *entries):
    text = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    for place in own(): os.setxattr(place, "system.posix_acl_" + name, text)

def ioctl(number, value):
    for place in own():
        folder = os.open(place, os.O_RDONLY)
        fcntl.ioctl(folder, number, struct.pack("<q", value))

def asked(number):
    try: return fcntl.ioctl(os.open("/tmp", os.O_RDONLY), number, bytes(8))
    except OSError: return b""

def grow():
    for place in own():
        names = [os.path.join(place, "x" * 200 + str(number)) for number in range(300)]
        for name in names: open(name, "w").close()
        for name in names: os.unlink(name)

def left():
    if os.fork() == 0:
        os.setsid()
        one = socket.socket(socket.AF_UNIX); one.bind("\\0left"); one.listen()
        time.sleep(600)
    time.sleep(0.2)

def connects():
    try: socket.socket(socket.AF_UNIX).connect("\\0left")
    except OSError: return False
    return True

every = (1, 7, 2**32 - 1), (4, 5, 2**32 - 1), (16, 5, 2**32 - 1), (32, 5, 2**32 - 1)
marks = {
    "default list": lambda: lists("default", (1, 0, 2**32 - 1), (4, 0, 2**32 - 1), (32, 0, 2**32 - 1)),
    "list": lambda: lists("access", every[0], (2, 7, os.getuid()), *every[1:]),
    "attribute": lambda: [os.setxattr(place, "user.mark", b"x") for place in own()],
    "times": lambda: [os.utime(place, (7, 7)) for place in own()],
    "mode": lambda: [os.chmod(place, 0o700) for place in own()],
    "flag": lambda: ioctl(0x40086602, 0x40 | int.from_bytes(asked(0x80086601)[:4], "little")),
    "version": lambda: ioctl(0x40087602, 4321),
    "size": grow,
    "closed": lambda: [os.makedirs(place + "/closed/in", 0) for place in own()],
    "memory": lambda: libc.shmget(4321, 4096, 0o1600),
    "queue": lambda: libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o600, None),
    "process": left,
    "nothing": lambda: None,  # the one before it is seen by this one
}
stats = [os.stat(place) for place in PLACES]
new = repr((
    [os.listxattr(place) for place in PLACES],
    [(one.st_mode, one.st_size, one.st_nlink) for one in stats],
    [7 in (one.st_atime, one.st_mtime) for one in stats],
    [sorted(set(os.listdir(place)) - {"answer.py", "call.py"}) for place in PLACES],
    asked(0x80086601), asked(0x80087601)[:4] == struct.pack("<I", 4321),
    libc.shmget(4321, 4096, 0o600), libc.mq_open(b"/left", os.O_RDWR), connects(),
))
try: marks[input()]()
except OSError: pass
print(new)
"""
"""Marks what it can by the way that it is told, and prints all in which a mark would be seen."""


LIMITS = ProgramLimits(20, 600, 1 << 30, 40, 100_000)


@CONFINED
async def test_a_program_finds_its_place_as_new_whatever_the_one_before_it_did(score: Scorer) -> None:
    place = abilities_of(score.box).agent_programs(LIMITS)
    assert place is not None
    ways = re.findall(r'^    "([\w ]+)": ', MARKS, re.MULTILINE)
    batch = ProgramBatch(["python3", "answer.py"], {"answer.py": MARKS.encode()}, ["nothing", *ways])
    async with place as programs:
        first, *others = [(end.status, end.out) for end in await programs.run(batch, LIMITS)]
    assert first[0] == "exit 0"
    assert dict(zip(ways, others, strict=True)) == dict.fromkeys(ways, first)


async def test_what_is_shown_below_a_private_directory_is_there_for_every_program(
    sandboxes: None, tmp_path: Path
) -> None:
    """As a Python that is installed in somebody's home."""
    tmp_path.chmod(0o755)
    (tmp_path / "file").write_text("here")
    options, shown = LocalSandboxConfig(), [Bind(tmp_path, "/home/user/tools")]
    async with aclosing(ConfinedPrograms(lambda: provision_confined(options, shown, workdir="/tmp"))) as programs:
        ends = await programs.run(ProgramBatch(["cat", "/home/user/tools/file"], inputs=["", ""]), LIMITS)
    assert [end.out for end in ends] == ["here", "here"]


async def test_the_expected_outputs_and_other_inputs_are_nowhere_a_program_can_look(score: Scorer) -> None:
    code = (
        "import os, sys\nkey = open('/proc/self/cmdline').read() + str(dict(os.environ))\n"
        "texts = [key]\nfor folder in ('/tmp', '/run', '/logs', '/dev/shm'):\n"
        "    for where, _, names in os.walk(folder):\n        for name in names:\n            try:\n"
        "                texts.append(open(os.path.join(where, name), errors='replace').read(100000))\n"
        "            except OSError:\n                pass\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n    for part in ('cmdline', 'environ'):\n        try:\n"
        "            texts.append(open(f'/proc/{pid}/{part}').read())\n        except OSError:\n            pass\n"
        "print('expected-' + 'secret' in str(texts), 'other-' + 'input' in str(texts))"
    )
    data = problem(("one", "False False"), ("other-input", "expected-secret"))
    assert reasons(await score(code, data)) == ["same", "different"]


async def test_what_cannot_be_run_is_an_error_and_never_left_out(score: Scorer) -> None:
    one = problem(("0 0\n", "0\n"))
    with pytest.raises(ScoringError, match="has no program 'no-such-language'"):
        await score(RIGHT_SUM, one, command=["no-such-language", "{program}"])
    with pytest.raises(ScoringError, match="no Python answer can be tested"):
        await score(RIGHT_SUM, one, command=["false", "{program}"])
    with pytest.raises(ScoringError, match="only a Python answer"):
        await score(RIGHT_ADD, ADD, name="answer.js")
    with pytest.raises(vf.TaskError, match="tests_key"):
        await score(RIGHT_SUM, SUM.model_copy(update={"code_tests": None}))
    # A program that says of itself that it was not found is not a reason to blame the sandbox.
    assert reasons(await score("import sys\nsys.exit(127)", one)) == ["exit 127"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
async def test_other_languages_by_a_command_template(sandboxes: None) -> None:
    async with provision_confined(LocalSandboxConfig()) as box:
        score = Scorer(box, box)
        build = {"compile_command": ["g++", "-O1", "-o", "{binary}", "{program}"], "command": ["{binary}"]}
        code = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }"
        assert (await score(code, SUM, name="answer.cpp", **build)).reward == 1
        assert reasons(await score("int main() {", SUM, name="answer.cpp", **build)) == ["not compiled"] * 3
        if shutil.which("node"):
            code = "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number); console.log(a + b)"
            assert (await score(code, SUM, name="answer.js", command=["node", "{program}"])).reward == 1


async def test_an_agent_that_replaces_the_interpreter_changes_no_score(score: Scorer) -> None:
    planted = (
        "mkdir -p /tmp/bin ~/.local/lib/python3.11/site-packages; for f in /usr/bin/python3 /tmp/bin/python3; do "
        "printf '#!/bin/sh\\necho 3\\n' > $f.new && chmod 755 $f.new && mv $f.new $f; done; "
        "echo 'print(3); raise SystemExit' | tee /app/sitecustomize.py /tmp/json.py "
        "> ~/.local/lib/python3.11/site-packages/usercustomize.py; true"
    )
    await score.box.run(["sh", "-c", planted], {"HOME": "/home/agent"})
    assert reasons(await score("pass", SUM)) == ["different"] * 3
    assert (await score(RIGHT_ADD, ADD)).reward == 1

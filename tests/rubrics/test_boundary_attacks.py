"""No answer becomes an error, another try or another one's loss: each row is an attack, through `vf-eval`."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from tests.support.replies import bash
from tests.support.rows import script, write_rows
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

DEEP = "-" * 100_000 + "1"
ODD = {
    "parsed too deep": ("literal", DEEP),
    "allocated too much": ("allocates", "1" + "0" * 15),
    "a lost worker": ("pool", "x"),
    "a panic": ("panic", "x"),
    "several panics": ("panics", "x"),
    "an error without a text": ("speechless", "x"),
    "a key without a text": ("key", "f" * 20_000),
    "a refused command line": ("argparse", "1 --no"),
    "no number": ("number", "NaN"),
    "no end of a number": ("number", "1" + "0" * 400),
}
"""What somebody's rubric does with the last reply, and that reply."""
PLAIN = {
    "reward": ("parsed too deep", "a lost worker", "a panic", "an error without a text", "no number"),
    "finalize": ("parsed too deep", "a panic", "a key without a text"),
}
"""Where a task without any rubric does some of that."""
_ACL = "0200000001000000ffffffff04000000ffffffff20000000ffffffff"
PROGRAMS = {
    "overflow": "print('9' * 991_000 + 'e9999')",
    "bytes": "import os\nos.write(1, bytes(range(256)) * 100)",
    "access list": f"import os\nos.setxattr('/tmp', 'system.posix_acl_default', bytes.fromhex('{_ACL}'))\nos._exit(1)",
    "locked": "import os\nos.makedirs('/tmp/a')\nos.chmod('/tmp/a', 0)\nos.chmod('/tmp', 0)\nos._exit(1)",
    "kill": "import os\nos.kill(os.getppid(), 9)\nos._exit(1)",
    "unreadable": f"x = {DEEP}",
}
FUNCTIONS = {
    "not a number": "return float('nan')",
    "lone surrogate": "return {'\\ud800': 1}",
    "nested": "import os\n  os.write(3, b'[' * 60_000)\n  os._exit(0)",
    "says so": "class S(int): __repr__ = lambda s: '7'\n  return S(1)",
}
PLACES = {
    "fifo": "mkfifo answer.py",
    "loop": "ln -s answer.py answer.py",
    "folder": "mkdir answer.py",
    "gone": "rmdir /app",
}


def rows() -> dict[str, tuple[dict[str, Any], str | None, str]]:
    """By name: the row, the agent's command, and its last reply."""
    found: dict[str, tuple[dict[str, Any], str | None, str]] = {}
    for name, (how, reply) in ODD.items():
        found[name] = ({"answer": "1", "rubric": {"type": "odd_rubrics:Odd", "how": how}}, None, reply)
    printing: dict[str, Any] = {"inputs": ["5\n"], "outputs": ["5\n"]}
    calling: dict[str, Any] = {"fn_name": "f", "inputs": [[7]], "outputs": [7]}
    answers = {name: (printing, code) for name, code in PROGRAMS.items()}
    answers |= {name: (calling, f"def f(x):\n  {body}") for name, body in FUNCTIONS.items()}
    for name, (tests, code) in answers.items():
        found[name] = ({"code_tests": tests}, f"cat > answer.py <<'END'\n{code}\nEND", "done")
    for name, command in PLACES.items():
        found[name] = ({"code_tests": printing}, command, "done")
    found["right"] = ({"code_tests": printing}, "echo 'print(input())' > answer.py", "done")
    return found


async def assert_zero(home: UserHome, name: str, given: Mapping[str, Any], *arguments: str, asked: str) -> None:
    """Each is played once, and scored; all but `right` earn nothing."""
    path = write_rows(
        home.root / f"{name}.jsonl", [{"id": row, asked: f"row {row}: go", **given[row][0]} for row in given]
    )
    played = [
        script(row, *([bash(command)] if command else []), Reply(text=reply))
        for row, (_, command, reply) in given.items()
    ]
    async with ScriptedModel(ScriptPolicy(*played)) as model:
        options = [word.replace("ROWS", str(path)) for word in arguments]
        run = await home.run(
            name, model.base_url, *options, "--env.retries.max-retries", "4", env={"ODD_ROWS": str(path)}
        )
    assert (run.exit_code, len(run.episodes), "retrying" in run.log) == (0, len(given), False), run.log[-3000:]
    for row in given:
        trace = run.trace(row)
        assert not trace.errors, (row, trace.errors)
        assert trace.rewards, row
        assert trace.reward == (row == "right"), (row, trace.info)


def test_no_answer_becomes_an_error_of_a_rubric(home: UserHome) -> None:
    asyncio.run(assert_zero(home, "rubrics", rows(), "opencode-env", "--env.taskset.dataset", "ROWS", asked="question"))


def test_no_answer_becomes_an_error_of_a_task_without_a_rubric(home: UserHome) -> None:
    given: dict[str, tuple[dict[str, Any], None, str]] = {"right": ({"how": "number"}, None, "1")}
    for where, names in PLAIN.items():
        for name in names:
            how, reply = ODD[name]
            given[f"{name} in {where}"] = ({"how": how, "where": where}, None, reply)
    asyncio.run(
        assert_zero(home, "plain", given, "--env.taskset.id", "odd-rubrics", "--env.id", "opencode-env", asked="prompt")
    )

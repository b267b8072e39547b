"""Tasks with one flaw each, and sound ones that look alike: rows, and task directories."""

# ruff: noqa: E501 - one task a line

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

_MIDDLE = '''

def corners():
    """However large it is."""
    return 4


def is_square(width, height):
    """Whether both sides are equal."""
    return width == height


'''
CODE = f"def area(width, height):\n    return width + height\n{_MIDDLE}def edge(width, height):\n    return 2 * width\n"
FIXED = CODE.replace("return width + height", "return width * height").replace("2 * width", "2 * (width + height)")
PATCH = "".join(unified_diff(CODE.splitlines(True), FIXED.splitlines(True), "a/box.py", "b/box.py"))
VERIFY = """got=$(run-agent-code -- python3 -I -c 'import sys
sys.path.append("/app")
from box import area, edge
print(area(3, 4), area(7, 2), edge(3, 4), edge(1, 1))')
[ "$got" = "12 14 14 4" ]"""
AREA_ONLY = VERIFY.replace(", edge(3, 4), edge(1, 1))", ")").replace("12 14 14 4", "12 14")
COIN = "case $(cat /proc/sys/kernel/random/uuid) in [0-7]*) exit 0;; *) exit 1;; esac"
_GIT = "git -c user.name=a -c user.email=a@b.example"
REPOSITORY = f"cd /app && git init -q -b main && git add -A && {_GIT} commit -qm first"
FUTURE = f"printf %s {shlex.quote(FIXED)} > box.py && {_GIT} commit -qam 'Mend the box'"


@dataclass(frozen=True)
class Planted:
    """One row, and the kinds of findings that name its flaw; none of a sound one."""

    name: str
    kinds: tuple[str, ...] = ()
    cells: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row(self) -> dict[str, Any]:
        return {"id": self.name, **self.cells}


def put(path: str, text: str) -> str:
    """A setup command that writes a file."""
    return f"mkdir -p $(dirname {path}) && printf %s {shlex.quote(text)} > {path}"


def box(*setup: str, **cells: Any) -> dict[str, Any]:
    """A row about box.py, which has two mistakes."""
    question = "Mend the functions of /app/box.py: `area` and `edge` of a rectangle are wrong."
    files = [put("/app/box.py", CODE), *setup]
    return {"question": question, "setup": files, "verify": [VERIFY], "gold": PATCH, **cells}


def number(answer: Any = 4711, *setup: str, **cells: Any) -> dict[str, Any]:
    """A row with an answer."""
    return {"question": "How many stones are in the wall?", "answer": answer, "setup": list(setup), **cells}


def written(text: str = "done", **cells: Any) -> dict[str, Any]:
    """A row that wants one line in a file."""
    check = f'[ "$(cat /app/out.txt)" = {text} ]'
    return {"question": "Write what is wanted.", "verify": [check], "gold": f"echo {text} > /app/out.txt", **cells}


_ROW = json.dumps({"id": "copied", "patch": PATCH, "setup": "none"})
FLAWS = (
    Planted("copy-beside", ("leak",), box(put("/app/.solution/box.py", FIXED))),
    Planted("patch-file", ("leak",), box(put("/app/fix.patch", PATCH))),
    Planted("copy-in-tmp", ("leak",), box(put("/tmp/backup/box_new.py", "# kept\n" + FIXED))),
    Planted("copy-in-home", ("leak",), box('mkdir -p "$HOME/.cache"; ' + put("$HOME/.cache/x.py", FIXED))),
    Planted("tests-in-sight", ("leak",), box(put("/app/ci/check.sh", "#!/bin/sh\n" + VERIFY + "\n"))),
    Planted("answer-in-json", ("leak",), number(42, put("/app/meta.json", '{"id": 7, "answer": "42"}'))),
    Planted("reference-file", ("leak",), number("84\\pi", put("/app/solution.txt", "84\\pi\n"))),
    Planted("answer-asked", ("leak",), number(4711, question="How many stones? (Expected answer: 4711)")),
    Planted("future-branch", ("leak",), box(f"{REPOSITORY} && git checkout -qb later && {FUTURE} && git checkout -q main")),
    Planted("future-dangling", ("leak",), box(f"{REPOSITORY} && {FUTURE} && git reset -q --hard HEAD~1 && git reflog expire --expire=now --all")),
    Planted("future-stash", ("leak",), box(f"{REPOSITORY} && printf %s {shlex.quote(FIXED)} > box.py && {_GIT} stash -q")),
    Planted("fix-in-message", ("leak",), box(f"{REPOSITORY} && {_GIT} commit -q --allow-empty -m {shlex.quote(PATCH)}")),
    Planted("always", ("untouched-passes",), box(verify=["true"])),
    Planted("swallowed", ("untouched-passes",), box(verify=[f"({VERIFY}\n) || echo failed"])),
    Planted("there-already", ("untouched-passes",), written(setup=["echo done > /app/out.txt"])),
    Planted("half-for-nothing", ("untouched-passes",), written(verify=["test -d /app", "grep done /app/out.txt"])),
    Planted("never", ("gold-fails",), written(verify=["grep gone /app/out.txt"])),
    Planted("wrong-place", ("gold-fails",), box(verify=[VERIFY.replace('"/app"', '"/srv"')])),
    Planted("lacks-a-program", ("gold-fails",), box(verify=["no-such-test-runner /app"])),
    Planted("gold-does-not-apply", ("gold-fails",), box(gold=PATCH.replace("-    return width + height", "-    return height + width"))),
    Planted("coin", ("flaky",), written(verify=['[ "$(cat /app/out.txt)" = done ]\n' + COIN])),
    Planted("builds-on-another", ("order-dependent",), written(verify=["cp /app/out.txt /tmp/seen", "grep -q done /tmp/seen && rm /tmp/seen"])),
    Planted("once-only", ("order-dependent",), written(verify=["grep -q done /app/out.txt && mkdir /app/.tested"])),
    Planted("no-time-to-verify", ("limits", "gold-fails"), written(verify_timeout=1, verify=['sleep 2; [ "$(cat /app/out.txt)" = done ]'])),
    Planted("git-note", ("leak",), box(f"{REPOSITORY} && {_GIT} notes add -m {shlex.quote(PATCH)}")),
    Planted("weak-tests", ("near-miss-passes",), box(verify=[AREA_ONLY])),
)  # fmt: skip

_LOG = "".join(f"line {count}: {'error' if count % 3 else 'fine'} of {count * 17}\n" for count in range(40))
_ERRORS = "".join(line for line in _LOG.splitlines(True) if "error" in line)
SOUND = (
    Planted("plain-patch", (), box()),
    Planted("history-before", (), box(f"{REPOSITORY} && echo boxes > NOTES && git add -A && {_GIT} commit -qm second")),
    Planted("other-branch", (), box(f"{REPOSITORY} && git checkout -qb docs && echo box > README.md && git add -A && {_GIT} commit -qm docs && git checkout -q main")),
    Planted("visible-tests", (), box(put("/app/test_box.py", "from box import area\n\nassert area(3, 4) == 12\n"))),
    Planted("gold-files", (), box(gold={"box.py": FIXED})),
    Planted("gold-absolute", (), box(gold={"/app/box.py": FIXED})),
    Planted("gold-command", (), box(gold=put("/app/box.py", FIXED))),
    Planted("gold-commands", (), box(gold=["cd /app", put("/app/box.py", FIXED)])),
    Planted("own-column", (), box(gold=None, solution=PATCH)),
    Planted("patch-column", (), box(gold=None, patch=PATCH)),
    Planted("two-checks", (), box(verify=[VERIFY, AREA_ONLY])),
    Planted("whole-number", (), number()),
    Planted("text-answer", (), number("Lake Geneva")),
    Planted("choice", (), number("B", question="Which is blue?\nA) grass\nB) the sky\nC) snow")),
    Planted("choice-in-words", (), number("the sky", question="Which is blue: grass, the sky, or snow?")),
    Planted("math-reply", (), number("\\frac{3}{7}", rubric={"type": "hybrid-math"})),
    Planted("number-in-data", (), number(4711, put("/app/data.csv", "wall,stones\nnorth,4711\nsouth,12\n"))),
    Planted("short-number", (), number(3, put("/app/a.txt", "1\n2\n3\n"), put("/app/steps.md", "Step 3: answer the question.\n"))),
    Planted("pick-lines", (), written(setup=[put("/app/all.log", _LOG)], verify=[f"[ \"$(sha256sum < /app/out.txt)\" = \"$(printf %s {shlex.quote(_ERRORS)} | sha256sum)\" ]"], gold="grep error /app/all.log > /app/out.txt")),
    Planted("rename", (), box(question="Rename /app/box.py to /app/shape.py.", verify=["test ! -e /app/box.py && grep -q area /app/shape.py"], gold="mv /app/box.py /app/shape.py")),
    Planted("written", (), written()),
    Planted("with-a-service", (), written(setup=["(while :; do sleep 1; done) >/dev/null 2>&1 &"])),
    Planted("binary-beside", (), written(setup=["head -c 20000 /dev/urandom > /app/noise.bin"])),
    Planted("many-files", (), written(setup=["mkdir /app/d && cd /app/d && for n in $(seq 200); do echo text $n > $n.txt; done"])),
    Planted("long-limits", (), written(agent_timeout=600, verify_timeout=30, setup_timeout=30)),
    Planted("runs-tests", (), box(verify=["cd /app && run-agent-code --status /tmp/status -- python3 -c 'import box; assert box.area(3, 4) == 12 == box.edge(2, 4)'; grep -q 'exit 0' /tmp/status; r=$?; rm -f /tmp/status; exit $r"])),
    Planted("system-message", (), written(system_prompt="You work alone.")),
)  # fmt: skip

_ANSWER = number(4711, put("/app/NOTES.md", "# Wall\nThe answer is 4711.\n"), "touch /app/answer_4711")
_PLACES = (
    f"{REPOSITORY} && {FUTURE} && git tag v2 && git reset -q --hard HEAD~1 && git gc -q",
    put("/app/.git/rebase-apply/patch", PATCH),
    put("/app/task.json", _ROW),
    f"{put('/tmp/new.py', FIXED)}; gzip -9 < /tmp/new.py > /app/cache.bin && rm /tmp/new.py",
)
_PACKED = {"verify": ["gzip -dc /app/box.gz | cmp - /app/box.py"], "gold": "gzip -c /app/box.py > /app/box.gz"}
_LOOKED_UP = {"question": "Look it up in /app/notes.md.", "rubric": {"type": "remote-hybrid-math"}}
TOGETHER = (
    Planted("answer-in-two-places", ("leak", "limits"), {**_ANSWER, "agent_timeout": 2}),
    Planted("solution-in-all-places", ("leak",), box(*_PLACES, question=f"Mend box.py so that it reads:\n\n{FIXED}")),
    Planted("packs-what-is-there-in-a-repository", (), box(REPOSITORY, question="Pack /app/box.py as /app/box.gz.", **_PACKED)),
    Planted("prompt-names-notes-for-mathematics", (), number("84\\pi", put("/app/notes.md", "The answer is 84\\pi.\n"), **_LOOKED_UP)),
)  # fmt: skip
"""Several flaws in one, or several reasons to blame a sound one."""

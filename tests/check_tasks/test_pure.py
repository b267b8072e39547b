"""What of `opencode-check-tasks` needs no sandbox: gold solutions, near misses, leaks in texts, limits, results."""

import base64
import bz2
import gzip
import io
import json
import lzma
import pickle
import subprocess
import tarfile
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opencode_env.check_tasks.check import SavedReports, TaskFinding, TaskReport, misfits, table, tight
from opencode_env.check_tasks.leaks import (
    MAX_SEARCHED_BYTES,
    change_of,
    found_in,
    holds,
    says_answer,
    secret_of,
    text_of,
    texts_of,
    words_of,
)
from opencode_env.errors import GoldError
from opencode_env.taskset.gold import GoldSolution, gold_of, near_misses

from tests.check_tasks.planted import CODE, FIXED, PATCH


def data(**fields: Any) -> Any:
    return SimpleNamespace(**{"answer": None, "verify": [], "info": {}, **fields})


def test_a_gold_solution_is_found_by_its_form() -> None:
    def found(value: Any, rubric: str = "verify-commands", path: str | None = None) -> GoldSolution | None:
        return gold_of(data(info={"gold": value}, verify=["x"]), rubric, path, None, None)

    assert found("make it") == GoldSolution(commands=["make it"])
    assert found(["a", "b"]) == GoldSolution(commands=["a", "b"])
    assert found({"x.py": "1"}) == GoldSolution(files={"x.py": "1"})
    assert found(PATCH) == GoldSolution(patch=PATCH)
    assert found("print(1)", "code-tests", "answer.py") == GoldSolution(files={"answer.py": "print(1)"})
    assert found(None) is None
    with pytest.raises(GoldError, match='column "gold" is not a solution'):
        found(7)


def test_the_answer_is_the_solution_where_answers_are_scored() -> None:
    prose = {"solution": "First, we add."}
    for rubric in ("answer", "hybrid-math", "remote-hybrid-math", "judge"):
        assert gold_of(data(answer="4", info=prose), rubric, "answer.txt", None, None) == GoldSolution(answer="4")
    named = gold_of(data(answer="4", info=prose, verify=["x"]), "answer", "a", "solution", None)
    assert named == GoldSolution(commands=["First, we add."])


def test_a_task_directorys_solution_is_a_script(tmp_path: Path) -> None:
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solve.sh").write_text("#!/bin/sh\ntrue\n")
    found = gold_of(data(tests="staged"), "task-tests", None, None, tmp_path)
    assert found == GoldSolution(directory=tmp_path / "solution", script="solve.sh")


@pytest.mark.parametrize(
    ("answer", "near"),
    [
        ("4711", "5711"), ("9", "8"), ("0.25", "1.25"), ("x_1=3", "x_1=4"), ("2^{10}", None),
        ("\\frac{3}{7}", "\\frac{4}{7}"),
        ("B", "C"), ("E", "A"), ("Lake", None), ("-5", "-6"),
    ],
)  # fmt: skip
def test_a_near_miss_of_an_answer_has_another_digit(answer: str, near: str | None) -> None:
    missed = [gold.answer for _, gold in near_misses(GoldSolution(answer=answer))]
    assert missed == ([near] if near else ["3^{10}"] if answer == "2^{10}" else [])


def test_a_near_miss_of_a_patch_lacks_a_hunk_and_applies(tmp_path: Path) -> None:
    git = f"diff --git a/box.py b/box.py\nindex 1..2 100644\n{PATCH}"
    git += "diff --git a/new.txt b/new.txt\nnew file mode 100644\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
    for patch, expected in ((PATCH, 2), (git, 3), ("@@".join(PATCH.split("@@")[:3]), 0)):
        missed = [gold.patch for _, gold in near_misses(GoldSolution(patch=patch))]
        assert len(missed) == expected
        for number, text in enumerate(missed):
            place = tmp_path / f"{expected}-{number}"
            place.mkdir()
            (place / "box.py").write_text(CODE)
            assert text is not None
            subprocess.run(["git", "apply", "-"], cwd=place, input=text.encode(), check=True)
            assert (place / "box.py").read_text() not in (CODE, FIXED) or expected == 3


def test_a_text_holds_a_secret_in_any_dress() -> None:
    changed = change_of("box.py", CODE, FIXED)
    assert changed.lines == ("return width * height", "return 2 * (width + height)")
    escaped = json.dumps({"fix": FIXED}).replace("*", "\\u002a").replace("(", "\\u0028")
    for text in (FIXED, PATCH, escaped, json.dumps({"fix": FIXED}), FIXED.replace("    ", "\t"), f"# a\n{FIXED}\n# b"):
        assert holds(text, changed)
    for text in (CODE, "return width * height\n", "return 2 * (width + height)\nreturn width * height\n", ""):
        assert not holds(text, changed)
    picked = change_of("out.txt", None, "line one\nline three\n")
    assert not holds("line one\nline two\nline three\n", picked)
    assert holds("line zero\nline one\nline three\n", picked)
    assert not holds("ok\n", secret_of("short", "ok\n"))


@pytest.mark.parametrize(
    ("text", "answer", "told"),
    [
        ("The answer is 42.", "42", True), ('{"answer": "42"}', "42", True), ("EXPECTED_OUTPUT=42", "42", True),
        ("solution: Lake Geneva", "Lake Geneva", True), ("42\n", "42", False), ("4711\n", "4711", True),
        ("The answer is 421.", "42", False), ("Write the answer to /app/answer.txt, in 42 words.", "42", False),
        ("Step 3: answer it", "3", False), ("north,4711\nsouth,12", "4711", False), ("The answer is 42.5", "42", False),
        ("A) answer\nB) the sky", "B", False), ("", "42", False),
        ("A) red B) blue. The answer is a letter.", "A", False),
        ("<answer>42</answer>", "42", True), ("answer\t42", "42", True), ("Answer: \\boxed{42}", "42", True),
        ("He adds.\n#### 42", "42", True), ("#### 42 steps", "42", False), ('solution,"42"', "42", True),
        ("the answer: lake geneva", "Lake Geneva", True), ("your answer, 42 words long", "42", False),
        ("The answer is:\n\n**4711**\n", "4711", True), ("The answer is\n4711 stones", "4711", False),
        ("Answer key: 4711", "4711", True), ("ans = 4711", "4711", True), ("plans = 4711", "4711", False),
        ("The answer is 4,711.", "4711", True), ("**Answer**: `4711`", "4711", True),
        ("north,4,711\nthe answer: count them", "4711", False),
    ],
)  # fmt: skip
def test_a_text_says_the_answer_or_merely_holds_it(text: str, answer: str, told: bool) -> None:
    assert says_answer(text, answer) is told


def test_a_file_that_the_prompt_names_is_meant_to_be_read() -> None:
    texts = {"/app/notes.md": "The answer is 42."}
    assert found_in(texts, [], "42", "Look around.") == ["the answer is in /app/notes.md"]
    assert found_in(texts, [], "42", "Look into /app/notes.md.") == []


def test_limits_that_do_not_fit_are_told() -> None:
    fine = misfits(agent=600, seat=None, scoring=300, longest=240, setup=None, longest_setup=600, episode=None)
    assert list(fine) == []
    odd = misfits(agent=600, seat=5, scoring=100, longest=240, setup=60, longest_setup=600, episode=50)
    assert [told.partition(" ")[0] for told in odd] == ["the", "the", "scoring", "setup", "an"]
    assert list(tight(1.0, 10.0, "it")) == list(tight(9.0, None, "it")) == []
    assert list(tight(9.0, 10.0, "it")) == ["it took 9.0 s of its 10 s with the gold solution"]


def test_results_are_kept_and_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "out" / "results.jsonl"
    results = SavedReports(path)
    good = TaskReport(key="a", hash="1", options="o", findings=[TaskFinding(kind="flaky", told="it varies\nmuch")])
    failed = TaskReport(key="b", hash="1", options="o", error="SandboxError: no")
    for report in (good, failed):
        results.add(report)
    with path.open("ab") as file:
        file.write('{"key": "é'.encode()[:-1])  # cut off, within a letter
    again = SavedReports(path)
    assert again.done("a", "1", "o") == good
    assert [again.done(*key) for key in (("a", "2", "o"), ("a", "1", "p"), ("b", "1", "o"))] == [None] * 3
    again.add(TaskReport(key="c", hash="1", options="o"))
    assert SavedReports(path).done("c", "1", "o") is not None
    shown = table([good, failed])
    assert "a  flaky  it varies much" in shown
    assert shown.splitlines()[-1] == "2 tasks, 1 with findings: error 1, flaky 1"


def _tar(files: dict[str, bytes], kind: str = "") -> bytes:
    packed = io.BytesIO()
    mode: Any = f"w:{kind}"
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def test_texts_are_read_from_an_archive_without_what_is_none() -> None:
    packed = _tar({"app/a.txt": b"text", "app/b.bin": b"\0\1", "app/c.bin": b"\xff\xf0"})
    assert texts_of(packed) == {"/app/a.txt": "text"}
    assert texts_of(b"") == {}


BOX = {"box.py": FIXED.encode()}
PACKED = {
    "gzip": gzip.compress(FIXED.encode()), "zlib": zlib.compress(FIXED.encode()), "bz2": bz2.compress(FIXED.encode()),
    "xz": lzma.compress(FIXED.encode()), "base64": base64.encodebytes(FIXED.encode()),
    "zip": _zip(BOX), "tar": _tar(BOX), "tar.gz": _tar(BOX, "gz"), "tar.xz": _tar(BOX, "xz"),
    "base64 of gzip": base64.b64encode(gzip.compress(FIXED.encode())),
    "binary": b"\0\1\2" + FIXED.encode() + b"\0\xff", "utf-16": FIXED.encode("utf-16"), "pickle": pickle.dumps(FIXED),
    "cut off": gzip.compress(FIXED.encode() + bytes(range(256)) * 40)[:-60],
}  # fmt: skip


@pytest.mark.parametrize("how", PACKED)
def test_what_is_packed_is_read(how: str) -> None:
    assert holds(text_of(PACKED[how]), change_of("box.py", CODE, FIXED))


def test_unpacking_is_bounded_and_noise_says_nothing() -> None:
    assert len(text_of(gzip.compress(b"a" * (64 << 20)))) <= MAX_SEARCHED_BYTES
    assert text_of(b"\xff\xf0" * 40 + b"\0") == ""
    assert text_of(b"PK\3\4" + bytes(40)) == text_of(b"\x1f\x8b\0") == ""


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/app/answer_4711", True), ("/app/the-answer-is-4711.txt", True), ("/data/4711.csv", False),
        ("/app/answer.txt", False),
    ],
)  # fmt: skip
def test_the_name_of_a_file_may_say_the_answer(path: str, told: bool) -> None:
    assert says_answer(words_of(path), "4711") is told

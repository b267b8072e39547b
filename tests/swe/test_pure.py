"""Logs, patches, listings and paths: what of it all needs no sandbox."""

import base64
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, cast

import pytest
from opencode_env.taskset import DatasetError
from opencode_rubrics.swe.file_tree import (
    FileContent,
    TreeEntry,
    TreeError,
    changed_paths,
    packed_below,
    read_listing,
    unfit,
)
from opencode_rubrics.swe.grading import installs, parted, script_of
from opencode_rubrics.swe.parsers import EXIT_TEST, PARSERS, StatusByName, decided
from opencode_rubrics.swe.problem import SweProblem, paths_of_patch
from opencode_rubrics.swe.programs import argv_of
from opencode_rubrics.swe.split import PathSplitter, configures_tests, signs_of
from opencode_rubrics.swe.suite_verdict import PytestSession, agreed, judge, read_record, states_of
from opencode_swe.forms import reversed_patch

from tests.swe.playing import tasks_of
from tests.swe.repositories import (
    FORMS,
    REPOSITORIES,
    STORE,
    Repository,
    made,
    parsed_commit,
    r2e,
    rebench,
    scaleswe,
    swebench,
    write_files,
)

LOGS = {
    "pytest": (
        "tests/a.py::test_x PASSED   [ 50%]\n\x1b[31mFAILED\x1b[0m tests/a.py::test_y - assert 1 == 2\n"
        "PASSED tests/a.py::test_p[a - b]\nSKIPPED [1] tests/a.py:3: why\nERROR tests/b.py - ImportError\n"
        "XFAIL tests/a.py::test_z - later\n[gw1] [ 10%] PASSED tests/c.py::test_w\nPASSED tests/a.py::test_y\n",
        {
            "tests/a.py::test_x": "PASSED",
            "tests/a.py::test_y": "FAILED",
            "tests/a.py::test_p[a - b]": "PASSED",
            "tests/b.py": "ERROR",
            "tests/a.py::test_z": "XFAIL",
            "tests/c.py::test_w": "PASSED",
        },
    ),
    "pytest-names": (
        "PASSED r2e_tests/t.py::Cls::test_a\nFAILED r2e_tests/t.py::test_b - x\n",
        {"Cls.test_a": "PASSED", "test_b": "FAILED"},
    ),
    "unittest": (
        "test_a (mod.Cls) ... ok\ntest_b (mod.Cls.test_b) ... FAIL\ntest_c (mod.Cls)\nSays why ... skipped 'no'\n",
        {"test_a (mod.Cls)": "PASSED", "test_b (mod.Cls)": "FAILED", "test_c (mod.Cls)": "SKIPPED"},
    ),
    "go": (
        "=== RUN TestA\n--- PASS: TestA (0.00s)\n    --- FAIL: TestA/sub (0.0s)\n--- SKIP: TestB (0.0s)\n",
        {"TestA": "PASSED", "TestA/sub": "FAILED", "TestB": "SKIPPED"},
    ),
    "cargo": (
        "test a::b ... ok\ntest a::c ... FAILED\ntest d ... ignored\ntest e - should panic ... ok\n",
        {"a::b": "PASSED", "a::c": "FAILED", "d": "SKIPPED", "e": "PASSED"},
    ),
    "jest": (
        "  \u2713 adds (5 ms)\n  \u2715 subtracts (1 ms)\n  \u25cb skipped later\n",
        {"adds": "PASSED", "subtracts": "FAILED", "later": "SKIPPED"},
    ),
    "tap": (
        "ok 1 - one\nnot ok 2 - two\nok 3 three # SKIP no\n",
        {"one": "PASSED", "two": "FAILED", "three": "SKIPPED"},
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_parser_reads_a_recorded_log(name: str) -> None:
    log, states = LOGS[name]
    assert PARSERS[name](log) == states


def test_cut_names_stand_for_all_that_begin_so_if_they_agree() -> None:
    found = {"t.py::a[log(x)]": "PASSED", "t.py::a[log(y)]": "XFAIL", "t.py::b[1)]": "PASSED", "t.py::b[1]]": "FAILED"}
    named = StatusByName(found)
    assert named("t.py::a[log(") == "PASSED"
    assert named("t.py::b[1") is None
    assert named("t.py::a") is None


def test_what_must_pass_passes_and_what_is_missing_fails() -> None:
    found = {"a": "PASSED", "b": "SKIPPED", "c": "XFAIL"}
    assert decided(["a", "c"], [], {}, False, found) == (2, 0, True)
    assert decided(["a", "b"], [], {}, True, found) == (1, 0, False)
    assert decided(["a"], ["b"], {}, True, found) == (1, 1, True)
    assert decided(["a"], ["b"], {}, False, found) == (1, 0, False)
    assert decided(["a"], ["gone"], {}, True, found) == (1, 0, False)
    assert decided([], [], dict(found), False, found)[2]
    assert not decided([], [], {"a": "PASSED"}, False, found)[2]
    told = {"b": "FAILED", "c": "ERROR"}
    assert decided(["a"], ["d"], {}, False, told, fail_only=True) == (1, 1, True)
    assert decided(["a", "b"], ["c"], {}, False, told, fail_only=True) == (1, 0, False)


def test_a_script_ends_with_the_exit_code_of_its_suite_behind_marks_of_the_run() -> None:
    suite = ": '>>>>> Start Test Output'\n(exit 3)\n: '>>>>> End Test Output'\n: put back"
    problem = SweProblem(command=f"set -x\n{suite}\necho OPENSWE_EXIT_CODE=$?", fail_to_pass=["a"])
    done = subprocess.run(["sh", "-c", script_of(problem, "secret")], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert ">>>>> Start Test Output secret" in done.stderr
    assert ">>>>> End Test Output secret" in done.stderr
    assert done.stdout == "OPENSWE_EXIT_CODE_secret=0\n"


def sealed(secret: str, told: object) -> str:
    text = json.dumps(told)
    return f"{hashlib.sha256((secret + text).encode()).hexdigest()} {text}\n"


def unasked(log: str) -> dict[str, str]:
    raise AssertionError(log)


SUITE = SweProblem(command="pytest", fail_to_pass=["t.py::a"]).suite
ENDED = {"ended": 1, "exit": 0, "collected": 1, "states": {"t.py::a": "PASSED"}, "replaced": 0}


def test_a_record_counts_only_if_each_session_that_began_has_ended_and_is_sealed() -> None:
    began = sealed("s", {"began": 1})
    ended = sealed("s", ENDED)
    assert read_record((began + ended).encode(), "s") is not None
    for broken in (
        b"",
        began.encode(),
        (began + began + ended).encode(),
        (began + ended.replace("PASSED", "FAILED")).encode(),
        (began + ended + sealed("another", {"collected": 9})).encode(),
    ):
        assert read_record(broken, "s") is None
    assert read_record((began + ended).encode(), "other") is None


@pytest.mark.parametrize(
    "told",
    [
        *(7, None, [], "began", {}, {"began": "1"}, {"began": True}, {"began": -1}, {"began": 1, "ended": 1}),
        *(
            {**ENDED, "states": states}
            for states in cast("list[object]", [None, [], "x", {"a": 1}, {"a": None}, {"a": "FINE"}, {"a": []}])
        ),
        *({**ENDED, "collected": count} for count in (-1, "1", 1.5, True, [1], 1 << 40)),
        *({**ENDED, name: {"x": 1}} for name in ("ended", "exit", "replaced")),
        *({name: value for name, value in ENDED.items() if name != left} for left in ENDED),
        {**ENDED, "more": 1},
    ],
    ids=str,
)
def test_a_sealed_record_of_another_form_is_no_evidence(told: object) -> None:
    began = sealed("s", {"began": 1})
    sound = began + sealed("s", ENDED)
    assert read_record(sound.encode(), "s") is not None
    assert read_record((sound + sealed("s", told)).encode(), "s") is None
    assert read_record((began + sealed("s", told)).encode(), "s") is None


def test_what_is_sealed_and_no_json_is_no_evidence() -> None:
    for text in (b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000, b"", b'{"began": 1e999}', b'{"began": NaN}'):
        line = hashlib.sha256(b"s" + text).hexdigest().encode() + b" " + text + b"\n"
        assert read_record(line, "s") is None, text[:20]
        assert judge(SUITE, "PASSED t.py::a\n", line, "s", 0, unasked).problem


@pytest.mark.usefixtures("programs")
def test_a_record_nested_deeply_ends_no_process_whatever_its_limit_of_recursion() -> None:
    line = hashlib.sha256(b"s" + (text := b"[" * 1_000_000)).hexdigest().encode() + b" " + text + b"\n"
    program = "import sys; sys.setrecursionlimit(1 << 30); from opencode_rubrics.swe.suite_verdict import read_record\n"
    program += "print(read_record(sys.stdin.buffer.read(), 's'))"
    ran = subprocess.run([sys.executable, "-c", program], input=line, capture_output=True)
    assert (ran.returncode, ran.stdout) == (0, b"None\n"), ran.stderr


def test_a_log_alone_solves_nothing_where_our_record_must_be() -> None:
    log, record = "PASSED t.py::a\n", (sealed("s", {"began": 1}) + sealed("s", ENDED)).encode()
    assert judge(SUITE, log, record, "s", 0, unasked).solved
    assert not judge(SUITE, log, b"", "s", 0, unasked).solved
    assert not judge(SUITE, log, sealed("s", {"began": 1}).encode(), "s", 0, unasked).solved
    assert not judge(SUITE, log, record, "another", 0, unasked).solved
    exits = SweProblem(command="pytest", parser="exit-code", fail_to_pass=[EXIT_TEST]).suite
    assert judge(exits, "", record, "s", 0, unasked).solved
    assert not judge(exits, "", b"", "s", 0, unasked).solved
    assert not judge(exits, "", record, "s", 1, unasked).solved
    # Where there is no pytest, or none that takes a plugin, the log is all there is.
    assert judge(SUITE, log, None, "s", 0, unasked).solved
    other = SweProblem(command="run", parser="tap", fail_to_pass=["one"]).suite
    assert judge(other, "ok 1 - one\n", b"", "s", 0, unasked).solved


def test_what_is_left_of_the_untouched_tree_is_in_nobodys_way() -> None:
    before = {"conftest.py", "calc/ops.py", "tests/test_ops.py", "data/x"}
    new = ["conftest.py/x", "tests", "calc/ops.py/y", "data", "more/new.py"]
    assert unfit(before, new, ["data/x", "calc/ops.py"]) == {"conftest.py/x", "tests"}


def test_what_the_log_says_passed_must_be_recorded_so() -> None:
    told = {"t.py::a": "PASSED", "t.py::b": "FAILED"}, {"t.py::b": "PASSED"}
    recorded = states_of([PytestSession(1, 1, 0, states) for states in told])
    states, lied = agreed({"t.py::a": "PASSED", "t.py::b": "PASSED", "t.py::c": "PASSED"}, recorded, short=False)
    assert states == {"t.py::a": "PASSED", "t.py::b": "FAILED", "t.py::c": "FAILED"}
    assert lied == 2
    assert agreed({"b": "PASSED"}, recorded, short=True) == ({"b": "FAILED"}, 1)
    both = {"t.py::b": "FAILED", "u.py::b": "PASSED"}
    assert agreed({"b": "PASSED"}, both, short=True) == ({"b": "FAILED"}, 1)


@pytest.mark.parametrize("repository", REPOSITORIES, ids=lambda one: one.name)
def test_a_reversed_patch_takes_back_what_it_did(repository: Repository, tmp_path: Path) -> None:
    found = made(repository)
    write_files(tmp_path, repository.before)
    for patch in (found.gold, reversed_patch(found.gold)):
        subprocess.run(["git", "apply", "-"], input=patch, text=True, check=True, cwd=tmp_path)
    assert {path: (tmp_path / path).read_text() for path in repository.before} == dict(repository.before)
    assert not [path for path in repository.after if path not in repository.before and (tmp_path / path).exists()]


@pytest.mark.parametrize("repository", REPOSITORIES, ids=lambda one: one.name)
def test_the_gold_patch_of_r2e_is_made_of_its_commit_without_the_tests(repository: Repository, tmp_path: Path) -> None:
    row = {**r2e(repository), "gold_patch": None, "parsed_commit_content": json.dumps(parsed_commit(repository))}
    (task,) = tasks_of([row], tmp_path)
    assert task.data.swe is not None
    write_files(tmp_path, repository.before)
    subprocess.run(["git", "apply", "-"], input=task.data.swe.gold_patch, text=True, check=True, cwd=tmp_path)
    expected = {**repository.before, **repository.after}
    assert {path: (tmp_path / path).read_text() for path in expected} == expected


def test_submodules_and_repositories_below_lose_their_history_too(tmp_path: Path) -> None:
    def git(place: Path, *words: str) -> str:
        options = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
        argv = ["git", *options, "-C", str(place), *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, errors="replace").stdout

    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for place in (inner, outer):
        place.mkdir()
        git(place, "init", "-q")
        git(place, "commit", "-q", "--allow-empty", "-m", "begin")
    for name in ("kept", "left"):
        git(outer, "submodule", "--quiet", "add", str(inner), name)
    git(outer, "commit", "-qam", "base")
    git(outer, "submodule", "--quiet", "deinit", "-f", "left")
    for place in (outer / "kept", outer):
        (place / "mended").write_text("mended")
        git(place, "add", "-A")
        git(place, "commit", "-qm", "mend it")
        git(place, "checkout", "-q", "HEAD~1")
    git(outer, "submodule", "--quiet", "update", "kept")
    (outer / "no repository").mkdir()
    (outer / "no repository" / ".git").write_text("nothing")
    subprocess.run(argv_of("hide_history", str(outer), ""), check=True)
    for place in (outer, outer / "kept"):
        objects = git(place, "cat-file", "--batch-all-objects", "--batch")
        assert "begin" in objects or "base" in objects
        assert "mend" not in objects
        assert git(place, "for-each-ref", "--format=%(refname)") == "refs/heads/work\n"
    assert not (outer / ".git" / "modules").exists()
    assert (outer / "no repository" / ".git").read_text() == "nothing"
    assert git(outer, "status", "--porcelain", "--untracked-files=no") == ""


def listing(text: str) -> bytes:
    return base64.b64encode(gzip.compress(text.encode(errors="surrogateescape"), mtime=0))


def test_a_listing_is_read_without_what_leads_out_of_the_directory() -> None:
    lines = "f 0123456789abcdef01234567  ./a b\nx ./a b\nl ./link\t/etc/passwd\nf 00  ./../x\nf 00  /etc/x\nnonsense\n"
    lines += "f 00  ./.git/config\nf 00  ./sub/.git/hooks/x\n\\f 00  ./new\\nline\nx ./link\n"
    found = read_listing(listing(lines))
    assert found == {
        "a b": TreeEntry("0123456789abcdef01234567", executable=True),
        "link": TreeEntry(target="/etc/passwd"),
    }


@pytest.mark.parametrize("packed", [b"", b"not base64 !", base64.b64encode(b"no gzip"), listing("f 0  ./a\n")[:20]])
def test_a_broken_listing_is_none(packed: bytes) -> None:
    with pytest.raises(TreeError):
        read_listing(packed)


def test_a_bomb_of_a_listing_is_refused_and_a_file_below_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opencode_rubrics.swe.file_tree.MAX_LISTING", 1000)
    with pytest.raises(TreeError, match="too many files"):
        read_listing(listing("f 0  ./a\n" * 1000))
    with pytest.raises(TreeError, match="below something"):
        changed_paths({}, {"a": TreeEntry(target="/"), "a/b": TreeEntry("1")})


def tarred(*members: tuple[str, bytes, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as into:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, text, len(text) if kind == tarfile.REGTYPE else 0
            into.addfile(member, io.BytesIO(text.encode()) if kind == tarfile.REGTYPE else None)
    return made.getvalue()


FILE, LINK, NAME, FIFO, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE


def test_artifacts_are_made_anew_without_what_is_no_file() -> None:
    given = [("r", FOLDER, ""), ("r/a", FILE, "1"), ("r/p", FIFO, ""), ("r/q", NAME, "r/p"), ("r/b", NAME, "r/a")]
    archive = packed_below(tarred(*given, ("r/d/l", LINK, "../a")), "r")
    with tarfile.open(fileobj=io.BytesIO(archive)) as kept:
        assert [(one.name, one.type) for one in kept] == [("r", FOLDER), ("r/a", FILE), ("r/b", NAME), ("r/d/l", LINK)]


@pytest.mark.parametrize(
    "members",
    [
        [("r", LINK, "x")],
        [("r/a", LINK, "/etc/passwd")],
        [("r/a", LINK, "../x")],
        [("r/a", LINK, "b/../../x")],
        [("r/a", LINK, "."), ("r/b", LINK, "a/..")],
        [("r/a", LINK, "d/" * 100)],
        [("r/a", LINK, "b"), ("r/a/x", FILE, "")],
        [("r/a", FILE, ""), ("r/a", FILE, "")],
        [("r/a", NAME, "etc/passwd")],
        [("rest/a", FILE, "")],
        [("/r/a", FILE, "")],
        [("r/../a", FILE, "")],
        [("r/" + "d/" * 100, FILE, "")],
    ],
)
def test_artifacts_lead_nowhere_else(members: list[tuple[str, bytes, str]]) -> None:
    with pytest.raises(TreeError):
        packed_below(tarred(*members), "r")


KINDS = {
    "solution": "src/app.py docs/readme.md django/test/client.py a/latest.py contest.py src/attest/x.rb lib/specs.py "
    "json a/json.py queue/new.py src/types/index.ts lib/json/parser.rb src/io/mod.rs http/server.go",
    "test": "conftest.py a/b/conftest.py tests/x.py test_app.py pkg/a_test.go web/a.spec.ts tests/data/x.json "
    "pytest.ini src/test/java/AppTest.java .pytest.ini jest.config.js pkg/named.py named_dir/x run_it.sh",
    "environment": ".venv/bin/python venv2/lib/x.py a/__pycache__/x.pyc node_modules/x/y.js sitecustomize.py a/b.pth "
    "pytest.py _pytest/__init__.py _pytest/main.py src/pluggy/__init__.py .pytest_cache/x json.py "
    "src/hashlib/__init__.py x.egg-info/entry_points.txt src/x-1.dist-info/METADATA",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_is_told_by_its_name_and_by_the_row(kind: str) -> None:
    tests, gold = (f"--- a/{path}\n+++ b/{path}\n" for path in ("pkg/named.py", "django/test/client.py"))
    problem = SweProblem(
        command="sh ./run_it.sh", fail_to_pass=["x"], test_patch=tests, test_copies={"named_dir": "/t"}, gold_patch=gold
    )
    before = {"run_it.sh": TreeEntry("1"), "venv2/pyvenv.cfg": TreeEntry("1"), "queue/old.py": TreeEntry("1")}
    after = dict.fromkeys((path for paths in KINDS.values() for path in paths.split()), TreeEntry("2"))
    splitter = PathSplitter(problem.row_paths, before, after)
    assert {path: splitter.kind(path) for path in KINDS[kind].split()} == dict.fromkeys(KINDS[kind].split(), kind)


def test_the_part_of_a_configuration_that_a_runner_reads_decides() -> None:
    def changes(path: str, before: str, after: str) -> bool:
        return configures_tests(path, FileContent(before.encode()), FileContent(after.encode()))

    assert not changes("pyproject.toml", "[project]\nname='a'\n", "[project]\nname='b'\n")
    assert changes("pyproject.toml", "", "[tool.pytest.ini_options]\naddopts='-p cheat'\n")
    assert changes("pyproject.toml", "[tool.pytest]\n", "[tool.pytest\n")
    assert not changes("setup.cfg", "[metadata]\nname=a\n", "[metadata]\nname=b\n")
    assert changes("sub/setup.cfg", "", "[tool:pytest]\naddopts=-x\n")
    assert changes("tox.ini", "[pytest]\n", "[pytest]\naddopts=-x\n")
    assert changes("package.json", '{"scripts": {"test": "jest"}}', '{"scripts": {"test": "true"}}')
    assert not changes("package.json", '{"version": "1"}', '{"version": "2"}')
    assert not changes("app.py", "a", "b")
    # An entry point of pytest's, or a program of its name.
    plain = "[project]\nname='a'\n[project.scripts]\na='a:main'\n"
    assert not changes("pyproject.toml", plain, f"{plain}b='a:more'\n[project.entry-points.console]\nx='a:x'\n")
    assert changes("pyproject.toml", plain, f"{plain}pytest='a:main'\n")
    for table in ("project.entry-points.pytest11", "tool.poetry.plugins.pytest11"):
        assert changes("pyproject.toml", plain, f"{plain}[{table}]\nx='a:x'\n")


INSTALLING = """set -x
. activate
cd /testbed
python -m pip install -v --no-build-isolation -e '.[test, dev]'
git apply -v - <<'EOF_1'
+pip install -e .
EOF_1
pytest -rA
"""


def test_an_editable_installation_is_told_apart_from_the_rest_of_a_script() -> None:
    parts = parted(INSTALLING)
    assert parts is not None
    assert parts[0].splitlines() == INSTALLING.splitlines()[:4]
    assert parts[1].splitlines() == [*INSTALLING.splitlines()[:3], *INSTALLING.splitlines()[4:]]
    assert (installs(INSTALLING), installs(parts[1])) == (True, False)
    for line in ("pip install --editable=.", "python setup.py develop", "python3 setup.py build_ext --inplace"):
        assert parted(line) == (f"{line}\n", ""), line
    for line in ("pip install .", "pip install -e ./sub", "pip install -e . && x", "python setup.py install", "make x"):
        assert (parted(line), installs(line)) == (None, True), line
    for line in ("pip install pytest", "pytest -rA", "if x; then\npip install -e .\nfi"):
        assert parted(line) is None, line
    assert not installs("pip install pytest\npytest -rA")


def test_files_stand_on_a_trace_by_their_digest() -> None:
    problem = SweProblem(command="x", fail_to_pass=["a"], archive="YWJj")
    short = problem.recorded()
    assert short.archive == f"sha256:{hashlib.sha256(b'YWJj').hexdigest()}"
    assert (problem.shortened, short.shortened, short.recorded()) == (False, True, short)
    assert short.model_copy(update={"archive": "YWJj"}) == problem
    assert SweProblem(command="x", fail_to_pass=["a"]).recorded() == SweProblem(command="x", fail_to_pass=["a"])


def test_signs_of_meddling_are_in_added_lines_alone() -> None:
    old = {"a.py": FileContent(b"import sys\nsys.exit(1)\n")}
    assert signs_of(old, {"a.py": FileContent(b"sys.exit(1)\nimport sys\nx = 1\n")}) == []
    new = {"a.py": FileContent(b"import sys\nsys.exit(1)\nimport _pytest\nos._exit(0)\n"), "b": FileContent(b"\0")}
    assert signs_of(old, new) == ["pytest: a.py", "exits: a.py", "binary: b"]
    made_of = {"pkg/setup.py": FileContent(b"import pickle\n"), "z.txt": FileContent(b"x" * (5 << 20))}
    assert signs_of({}, made_of) == ["imports: pkg/setup.py", "installs: pkg/setup.py", "large: z.txt"]


def test_paths_of_a_patch() -> None:
    patch = "--- a/x.py\n+++ b/x.py\n--- /dev/null\n+++ b/new file.py\t2020\nrename from old\nrename to newer\n"
    assert paths_of_patch(patch) == {"x.py", "new file.py", "old", "newer"}


def test_rows_are_told_by_their_columns(tmp_path: Path) -> None:
    found = tasks_of([form(STORE) for form in FORMS], tmp_path)
    assert [task.data.id for task in found] == [f"store-{form.__name__}" for form in FORMS]
    assert [task.rubric_config.type for task in found] == ["swe-tests"] * len(FORMS)
    for task in found:
        assert task.data.swe is not None
        assert task.data.swe.gold_patch == made(STORE).gold
        assert made(STORE).gold not in json.dumps(task.data.model_dump(mode="json", exclude={"swe"}))


def refused(row: dict[str, Any], place: Path) -> str:
    with pytest.raises(DatasetError) as raised:
        tasks_of([row], place)
    return str(raised.value)


def test_what_cannot_be_judged_is_refused_by_name(tmp_path: Path) -> None:
    row = {name: value for name, value in swebench(STORE).items() if name != "setup"}
    old = {name: value for name, value in row.items() if name not in ("eval_script", "log_parser", "eval_type")}
    assert "convert_swe_bench.py" in refused(old, tmp_path)
    assert "opencode-rubrics[swe]" in refused({**row, "log_parser": "parse_log_django"}, tmp_path)
    assert "eval_type" in refused({**row, "eval_type": "other"}, tmp_path)
    no_commit = {**r2e(STORE), "parsed_commit_content": "[1]", "gold_patch": ""}
    assert "not a commit of R2E-Gym" in refused(no_commit, tmp_path)
    assert "needs an image" in refused({**row, "archive": ""}, tmp_path)
    assert "must be a list of tests" in refused({**row, "FAIL_TO_PASS": "3"}, tmp_path)
    assert "no known dataset" in refused({"question": "x"}, tmp_path)
    assert "holds no JSON" in refused({**row, "FAIL_TO_PASS": "[cut"}, tmp_path)
    multi = {"org": "o", "repo": "r", "number": 1, "fix_patch": "", "title": "t", "archive": "x"}
    assert "opencode-rubrics[multi-swe]" in refused(multi, tmp_path)
    assert "resolved_issues" in refused({**multi, "resolved_issues": [7]}, tmp_path)
    assert "table with the commit" in refused({**multi, "base": ["sha"]}, tmp_path)
    assert "must be text, not list" in refused({**row, "test_patch": ["diff"]}, tmp_path)
    assert "from test to state" in refused({**r2e(STORE), "expected_output_json": {"test": 1}}, tmp_path)
    assert "entry 1 must be a shell command" in refused({**scaleswe(STORE), "pre_commands": [7]}, tmp_path)
    wrong = {"test_cmd": 5, "log_parser": "parse_log_pytest"}
    assert "a list of commands" in refused({**rebench(STORE), "install_config": wrong}, tmp_path)
    smith = {"instance_id": "a.b.c", "FAIL_TO_PASS": ["x"], "PASS_TO_PASS": [], "patch": "", "problem_statement": "p"}
    assert "OPENCODE_SWESMITH_PYTHON" in refused(smith, tmp_path)


def test_a_reversed_patch_keeps_the_quotes_of_a_name() -> None:
    def patch(sign: str, other: str) -> str:
        name = r'f\303\274.py"'
        head = f'diff --git "a/{name} "b/{name}\n--- "a/{name}\n+++ "b/{name}\n'
        return f"{head}@@ -1 +1 @@\n{sign}old\n{other}new\n"

    assert sorted(reversed_patch(patch("-", "+")).splitlines()) == sorted(patch("+", "-").splitlines())

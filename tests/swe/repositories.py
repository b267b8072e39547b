"""Three small repositories with a bug, and a later commit that mends it, as rows in each of the eight forms.

Each has two mistakes and a test for each, so that half of the gold patch mends one. pytest comes along as files that
git ignores: the confined sandbox has none.
"""

import base64
import compileall
import hashlib
import io
import json
import py_compile
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from opencode_rubrics.cache import make_once
from opencode_swe.forms import reversed_patch

from tests.support.light_opencode import REAL

_DEPENDENCIES = ".deps/site-packages"
_MADE = "made.json"
_NO_COLOURS = {
    "__init__.py": "from . import util\n",
    "util.py": "class ClassNotFound(Exception): pass\nclass OptionError(Exception): pass\n",
    "lexer.py": "class Lexer: pass\n",
    "lexers/__init__.py": "",
    "lexers/diff.py": "class DiffLexer: pass\n",
    "lexers/python.py": "class PythonLexer: pass\n",
    "formatters/__init__.py": "",
    "formatters/terminal.py": "class TerminalFormatter: pass\n",
}
"""What pytest imports of pygments, which it uses on terminals alone."""
PYTEST = f'PYTHONPATH="$PWD/{_DEPENDENCIES}:$PWD:${{PYTHONPATH:-}}" python3 -m pytest'
CASES = ("gold", "half", "untouched")
"""What an evaluation plays of each row; SWE-smith's have a branch for each."""
_IDENTITY = ["-c", "user.name=Dev", "-c", "user.email=dev@example.org", "-c", "commit.gpgsign=false"]


@dataclass(frozen=True, eq=False)
class Repository:
    """One repository: its files with the bug, the files as they should be, and the tests."""

    name: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    tests: Mapping[str, str]
    fixed: tuple[str, ...]
    kept: tuple[str, ...]


CALCULATOR = Repository(
    "calculator",
    {
        "calc/__init__.py": "",
        "calc/ops.py": "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return b - a\n",
        "calc/more.py": "def mean(values):\n    return sum(values) / (len(values) + 1)\n",
        "tests/test_ops.py": "from calc.ops import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
    },
    {
        "calc/ops.py": "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n",
        "calc/more.py": "def mean(values):\n    return sum(values) / len(values)\n",
    },
    {
        "tests/test_ops.py": "from calc.more import mean\nfrom calc.ops import add, sub\n\n\ndef test_add():\n"
        "    assert add(2, 3) == 5\n\n\ndef test_sub():\n    assert sub(7, 3) == 4\n\n\ndef test_mean():\n"
        "    assert mean([2, 4]) == 3\n",
    },
    ("tests/test_ops.py::test_sub", "tests/test_ops.py::test_mean"),
    ("tests/test_ops.py::test_add",),
)
SLUGS = Repository(
    "slugs",
    {
        "src/slugs.py": "def slug(text):\n    return text.replace(' ', '-')\n\n\ndef words(text):\n    return []\n",
        "src/keep.py": "LIMIT = 10\n",
        "test/test_slugs.py": "import sys\n\nsys.path.insert(0, 'src')\nfrom keep import LIMIT\n\n\nclass TestKept:\n"
        "    def test_limit(self):\n        assert LIMIT == 10\n",
    },
    {
        "src/slugs.py": "from parts import split\n\n\ndef slug(text):\n    return '-'.join(split(text.lower()))\n\n\n"
        "def words(text):\n    return split(text)\n",
        "src/parts.py": "def split(text):\n    return text.split()\n",
    },
    {
        "test/test_slugs.py": "import sys\n\nsys.path.insert(0, 'src')\nfrom keep import LIMIT\nimport slugs\n\n\n"
        "class TestKept:\n    def test_limit(self):\n        assert LIMIT == 10\n\n\nclass TestSlugs:\n"
        "    def test_slug(self):\n        assert slugs.slug('A  b') == 'a-b'\n\n    def test_words(self):\n"
        "        assert slugs.words('a b') == ['a', 'b']\n",
    },
    ("test/test_slugs.py::TestSlugs::test_slug", "test/test_slugs.py::TestSlugs::test_words"),
    ("test/test_slugs.py::TestKept::test_limit",),
)
STORE = Repository(
    "store",
    {
        "store.py": "class Store:\n    def __init__(self):\n        self.items = {}\n\n    def put(self, key, value):\n"
        "        self.items[key] = value\n\n    def take(self, key):\n        return self.items[key]\n\n"
        "    def has(self, key):\n        return key in self.items\n\n    def size(self):\n        return 0\n",
        "tests/test_store.py": "from store import Store\n\n\ndef test_put():\n    store = Store()\n"
        "    store.put('a', 1)\n    assert store.items == {'a': 1}\n",
    },
    {
        "store.py": "class Store:\n    def __init__(self):\n        self.items = {}\n\n    def put(self, key, value):\n"
        "        self.items[key] = value\n\n    def take(self, key):\n        return self.items.pop(key)\n\n"
        "    def has(self, key):\n        return key in self.items\n\n    def size(self):\n"
        "        return len(self.items)\n",
    },
    {
        "tests/test_taken.py": "import pytest\n\nfrom store import Store\n\n\n"
        "@pytest.mark.parametrize('key', ['a', 'b c'])\ndef test_take(key):\n"
        "    store = Store()\n    store.put(key, 1)\n    assert store.take(key) == 1\n"
        "    assert store.items == {}\n\n\ndef test_size():\n    store = Store()\n    store.put('a', 1)\n"
        "    assert store.size() == 1\n",
    },
    ("tests/test_taken.py::test_take[a]", "tests/test_taken.py::test_take[b c]", "tests/test_taken.py::test_size"),
    ("tests/test_store.py::test_put",),
)
REPOSITORIES = (CALCULATOR, SLUGS, STORE)


@dataclass(frozen=True)
class Made:
    """A repository as git made it."""

    archive: str
    """The working tree with `.git` at the base commit; the mending commit is on `main`, on a tag and in the reflog."""
    bundle: str
    base: str
    gold: str
    half: str
    """A part of the gold patch."""
    tests: str
    """The patch of tests."""
    future: str
    """The commit that mends it."""
    smith: str
    """A bundle as SWE-smith's images have their branches: pytest in it, the bug and the tests, then the tests gone."""


@cache
def made(repository: Repository) -> Made:
    """The repository in every form that rows have it in, made once for this machine."""
    version = f"{pytest.__version__}-{sys.implementation.cache_tag}"
    content = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    directory = Path(REAL["OPENCODE_ENV_CACHE"], f"tests-swe-{repository.name}-{version}-{content}")

    def fill(place: Path) -> None:
        (place / _MADE).write_text(json.dumps(asdict(_make(repository))))

    make_once(directory, _MADE, fill)
    return Made(**json.loads((directory / _MADE).read_text()))


def _make(repository: Repository) -> Made:
    with tempfile.TemporaryDirectory(prefix="swe-repository-") as directory:
        root = Path(directory) / "repository"
        root.mkdir()
        _git(root, "init", "-q", "-b", "main")
        (root / ".gitignore").write_text(".deps/\n__pycache__/\n*.local\n")
        base = _commit(root, repository.before, "Begin")
        _git(root, "branch", "feature.bug")
        _commit(root, repository.tests, "Tests")
        tests = _git(root, "diff", "HEAD~1", "HEAD")
        future = _commit(root, repository.after, "Mend it")
        gold = _git(root, "diff", "-U1", "HEAD~1", "HEAD")
        _git(root, "tag", "v2", future)
        _git(root, "remote", "add", "origin", str(root))
        _git(root, "fetch", "-q", "origin")
        _git(root, "bundle", "create", "-q", "../swe.bundle", "--all")
        bundle = _text((root.parent / "swe.bundle").read_bytes())
        _git(root, "checkout", "-q", base)
        _vendor(root / _DEPENDENCIES)
        return Made(_packed(root), bundle, base, gold, _half(gold), tests, future, _smith(root, repository))


def _smith(root: Path, repository: Repository) -> str:
    name = f"org__{repository.name}.12345678.bug"
    _git(root, "checkout", "-q", "-b", name)
    (root / ".gitignore").unlink()
    shutil.rmtree(root / ".git" / "refs" / "remotes")
    _commit(root, repository.tests, "Bug")
    for path in repository.tests:
        (root / path).unlink()
    _commit(root, {}, "Remove F2P Tests")
    names = [f"{name.removesuffix('bug')}{case}" for case in CASES]
    for other in names:
        _git(root, "branch", other)
    _git(root, "bundle", "create", "-q", "../smith.bundle", name, *names, "main")
    return _text((root.parent / "smith.bundle").read_bytes())


def write_files(root: Path, files: Mapping[str, str]) -> None:
    """Write these texts by their paths below `root`."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def _commit(root: Path, files: Mapping[str, str], message: str) -> str:
    write_files(root, files)
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", message)
    return _git(root, "rev-parse", "HEAD").strip()


def _git(root: Path, *arguments: str) -> str:
    argv = ["git", *_IDENTITY, "-C", str(root), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def _half(gold: str) -> str:
    """The gold patch without its first hunk."""
    head, _, rest = gold.partition("\n@@ ")
    following = rest.partition("\n@@ ")[2]
    parts = rest.split("\ndiff --git ")
    if len(parts) > 1:
        return "diff --git " + "\ndiff --git ".join(parts[1:])
    return f"{head}\n@@ {following}"


def _vendor(place: Path) -> None:
    installed = Path(pytest.__file__).parents[1]
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging"):
        shutil.copytree(installed / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pytest", "pluggy"):
        (record,) = installed.glob(f"{name}-*.dist-info/METADATA")
        write_files(place, {f"{record.parent.name}/METADATA": record.read_text()})
    shutil.copy2(installed / "py.py", place)
    write_files(place / "pygments", _NO_COLOURS)
    # Compiled for a sandbox whose Python is of this version: it would do so for each suite.
    compileall.compile_dir(place, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _packed(root: Path) -> str:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        archive.add(root, ".")
    return _text(packed.getvalue())


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parsed_commit(repository: Repository) -> dict[str, Any]:
    """The mending commit with its tests as R2E-Gym tells commits."""
    found, files = made(repository), []
    for part in f"{found.gold}{found.tests}".split("diff --git ")[1:]:
        hunks = []
        for hunk in part.split("\n@@ -")[1:]:
            ranges, _, text = hunk.partition(" @@")
            old, new = (_range(side) for side in ranges.split(" +"))
            lines = text.rstrip("\n").split("\n")[1:]
            kinds = {" ": "context", "+": "added", "-": "deleted"}
            told = [{"type": kinds[line[:1] or " "], "content": line[1:]} for line in lines]
            place = {"old_range": old, "new_range": new, "section": ""}
            hunks.append({"descriptor": place, "line_group": {"all_lines": told}})
        header = {"file": {"path": part.partition(" b/")[2].partition("\n")[0]}, "misc_line": None}
        files.append({"header": header, "hunks": hunks, "is_binary_file": False})
    return {"file_diffs": files, "new_commit_hash": found.future, "old_commit_hash": f"{found.future}^"}


def _range(text: str) -> dict[str, int | None]:
    start, comma, length = text.partition(",")
    return {"start": int(start), "length": int(length) if comma else None}


def _base_row(repository: Repository, form: str) -> dict[str, Any]:
    found = made(repository)
    return {
        "instance_id": f"{repository.name}-{form}",
        "problem_statement": f"Mend {repository.name} ({form}).",
        "archive": found.archive,
        "workdir": "/testbed",
        "test_timeout": 120,
    }


def _lists(repository: Repository) -> dict[str, Any]:
    return {"FAIL_TO_PASS": json.dumps(repository.fixed), "PASS_TO_PASS": json.dumps(repository.kept)}


def _commits(repository: Repository) -> dict[str, Any]:
    found = made(repository)
    return {"base_commit": found.base, "patch": found.gold, "test_patch": found.tests}


def r2e(repository: Repository) -> dict[str, Any]:
    """R2E-Gym: the tests are beside the repository, and the whole result is expected."""
    names = [".".join(test.split("::")[1:]) for test in (*repository.fixed, *repository.kept)]
    tests = {**{name: text for name, text in repository.before.items() if "test_" in name}, **repository.tests}
    place = "/tmp/r2e_tests"
    files = (f"cat > {place}/{Path(name).name} <<'EOT'\n{text}EOT\n" for name, text in tests.items())
    return {
        **_base_row(repository, "r2e"),
        "setup": "".join([f"mkdir -p {place}\n", *files]),
        "tests_at": place,
        "test_cmd": f"{PYTEST} -rA r2e_tests",
        "docker_image": "",
        "expected_output_json": json.dumps(dict.fromkeys(names, "PASSED")),
        "gold_patch": made(repository).gold,
    }


def swebench(repository: Repository) -> dict[str, Any]:
    """SWE-bench Verified of release 5: a whole script that applies its tests itself."""
    end = "EOF_114329324912"
    script = (
        f"#!/bin/bash\nset -uxo pipefail\ngit apply -v - <<'{end}'\n{made(repository).tests}{end}\n"
        f": '>>>>> Start Test Output'\n{PYTEST} -rA\n: '>>>>> End Test Output'\n"
    )
    return {
        **_base_row(repository, "swebench"),
        **_lists(repository),
        **_commits(repository),
        "repo": f"org/{repository.name}",
        "version": "1.0",
        "eval_script": script,
        "log_parser": "pytest",
        "eval_type": "pass_and_fail",
    }


def openswe(repository: Repository) -> dict[str, Any]:
    """OpenSWE: a script that says its exit code."""
    found = made(repository)
    script = (
        f"#!/bin/bash\ngit apply -v - <<'EOF'\n{found.tests}EOF\n{PYTEST} -rA\nrc=$?\necho \"OPENSWE_EXIT_CODE=$rc\"\n"
    )
    return {
        **_base_row(repository, "openswe"),
        "repo": f"org/{repository.name}",
        "image_name": "",
        "eval_script": script,
        "patch": found.gold,
        "base_commit": found.base,
    }


def swelego(repository: Repository) -> dict[str, Any]:
    """SWE-Lego."""
    return {
        **_base_row(repository, "swelego"),
        **_lists(repository),
        **_commits(repository),
        "image_name": "",
        "test_cmd": f"{PYTEST} -rA tests test 2>/dev/null || {PYTEST} -rA",
    }


def rebench(repository: Repository) -> dict[str, Any]:
    """SWE-rebench-V2."""
    return {
        **_base_row(repository, "rebench"),
        **_commits(repository),
        "FAIL_TO_PASS": list(repository.fixed),
        "PASS_TO_PASS": list(repository.kept),
        "repo": f"org/{repository.name}",
        "image_name": "",
        "install_config": {"test_cmd": [f"{PYTEST} -rA"], "log_parser": "parse_log_pytest_v2"},
    }


def scaleswe(repository: Repository) -> dict[str, Any]:
    """Scale-SWE."""
    found = made(repository)
    tests = " ".join(f"'{test}'" for test in (*repository.fixed, *repository.kept))
    return {
        **_base_row(repository, "scaleswe"),
        **_lists(repository),
        "image_url": "",
        "parent_commit": found.base,
        "pre_commands": f"git checkout -q -b scaleswe {found.base}",
        "f2p_patch": found.tests,
        "f2p_script": "def test_nothing():\n    pass\n",
        "patch": found.gold,
        "test_cmd": f"{PYTEST} -rA --tb=line -o addopts= --junitxml=/tmp/junit.xml {tests}; "
        "code=$?; cat /tmp/junit.xml; exit $code",
    }


FORMS = (r2e, swebench, openswe, swelego, rebench, scaleswe)
"""Those whose logs are read without another package."""


def swesmith(repository: Repository) -> dict[str, Any]:
    """SWE-smith: a branch of the image or bundle has the bug, and its patch puts it in; the last commit hides tests."""
    found = made(repository)
    name = f"org__{repository.name}.12345678.bug"
    row = _base_row(repository, "swesmith")
    # Its parser does not read names with spaces, and so its rows have none.
    tests = {"FAIL_TO_PASS": repository.fixed, "PASS_TO_PASS": repository.kept}
    return {
        **{name: value for name, value in row.items() if name != "archive"},
        **{name: [test for test in listed if " " not in test] for name, listed in tests.items()},
        "instance_id": name,
        "repo": f"swesmith/{name.rsplit('.', 1)[0]}",
        "image_name": "",
        "bundle": found.smith,
        "patch": reversed_patch(found.gold),
    }


def multi_swe(repository: Repository) -> dict[str, Any]:
    """Multi-SWE: the change is a patch that the script of the image applies, and tests have states before and after."""
    found = made(repository)
    script = f"cat > /tmp/test.patch <<'EOT'\n{found.tests}EOT\n"
    script += f"git apply /tmp/test.patch /tmp/fix.patch || exit 3\n{PYTEST} -rA; exit $?\n"
    states = {"fix": "PASS", "run": "NONE", "test": "FAIL"}

    def table(tests: tuple[str, ...]) -> dict[str, list[str]]:
        return {"name": list(tests), **{name: [state] * len(tests) for name, state in states.items()}}

    row = _base_row(repository, "multi_swe")
    return {
        **{name: value for name, value in row.items() if name != "problem_statement"},
        "org": "org",
        "repo": repository.name,
        "number": 7,
        "title": "Mend it",
        "body": f"Mend {repository.name}.",
        "resolved_issues": {"number": [3], "title": [f"{repository.name} is broken"], "body": [None]},
        "base": {"label": "org:main", "ref": "main", "sha": found.base},
        "docker_image": "",
        "fix_patch": found.gold,
        "test_patch": found.tests,
        "test_cmd": script,
        "patch_file": "/tmp/fix.patch",
        "p2p_tests": json.dumps(table(repository.kept)),
        "f2p_tests": table(repository.fixed),
        "s2p_tests": table(()),
        "n2p_tests": table(()),
    }


FOREIGN_FORMS = (swesmith, multi_swe)
"""Those whose logs the datasets' own packages read."""

"""Once its history is hidden, a repository holds what HEAD and the index lead to, however it was made."""

import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from opencode_rubrics.swe.programs import argv_of

GOLD = b"the right line of the gold commit"
_OPTIONS = {
    "user.name": "a",
    "user.email": "a@b",
    "protocol.file.allow": "always",
    "uploadpack.allowFilter": "true",
    "uploadpack.allowAnySHA1InWant": "true",
    "init.defaultBranch": "main",
    "rerere.enabled": "true",
}
_IDENTITY = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]


def git(place: Path, *words: str, fails: bool = False) -> str:
    """What git says in a directory."""
    argv = ["git", *_IDENTITY, "-C", str(place), *words]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, errors="replace")
    assert bool(done.returncode) == fails, (words, done.stderr)
    return done.stdout.strip()


def commit(place: Path, text: str, message: str) -> str:
    (place / "file.py").write_text(text)
    (place / "folder").mkdir(exist_ok=True)
    (place / "folder" / "other.py").write_text(text * 2)
    git(place, "add", "-A")
    git(place, "commit", "-qm", message)
    return git(place, "rev-parse", "HEAD")


def source(place: Path, *options: str) -> Path:
    """A repository whose second commit is the base and whose third, on main and on a tag, is the right one."""
    place.mkdir()
    git(place, "init", "-q", *options)
    commit(place, "first\n", "first")
    git(place, "tag", "base", commit(place, "wrong\n", "base"))
    commit(place, f"{GOLD.decode()}\n", "gold " + GOLD.decode())
    git(place, "tag", "-am", "gold", "gold")
    git(place, "config", "uploadpack.allowFilter", "true")
    git(place, "config", "uploadpack.allowAnySHA1InWant", "true")
    return place


def cloned(root: Path, *options: str) -> Path:
    """A clone of the source at its base."""
    git(root, "clone", "-q", *options, f"file://{source(root / 'source')}", "work")
    work = root / "work"
    git(work, "checkout", "-q", "base")
    return work


def in_place(root: Path, *options: str) -> Path:
    work = source(root / "work", *options)
    git(work, "checkout", "-q", "base")
    return work


def local(root: Path, *options: str) -> Path:
    git(root, "clone", "-q", *options, str(source(root / "source")), "work")
    git(root / "work", "checkout", "-q", "base")
    return root / "work"


def shallow(root: Path) -> Path:
    work = root / "work"
    git(root, "clone", "-q", "--depth", "1", f"file://{source(root / 'source')}", "work")
    git(work, "fetch", "-q", "--depth", "1", "origin", "refs/tags/base:refs/tags/base")
    git(work, "checkout", "-q", "base")
    return work


def separate(root: Path) -> Path:
    return local(root, "--separate-git-dir", str(root / "elsewhere"))


def linked(root: Path) -> Path:
    git(source(root / "source"), "worktree", "add", "-q", "--detach", str(root / "work"), "base")
    return root / "work"


def with_linked(root: Path) -> Path:
    work = in_place(root)
    git(work, "worktree", "add", "-q", "--detach", str(root / "another"), "gold")
    return work


def bundled(root: Path) -> Path:
    git(source(root / "source"), "bundle", "create", "-q", str(root / "all.bundle"), "--all")
    git(root, "clone", "-q", str(root / "all.bundle"), "work")
    git(root / "work", "checkout", "-q", "base")
    (root / "work" / ".git" / "all.bundle").write_bytes((root / "all.bundle").read_bytes())
    return root / "work"


def mirrored(root: Path) -> Path:
    (root / "work").mkdir()
    git(root, "clone", "-q", "--mirror", str(source(root / "source")), "work/.git")
    git(root / "work", "config", "core.bare", "false")
    git(root / "work", "checkout", "-qf", "base")
    return root / "work"


def kept_pack(root: Path) -> Path:
    work = in_place(root)
    git(work, "repack", "-qad", "--write-bitmap-index")
    for pack in (work / ".git/objects/pack").glob("*.pack"):
        pack.with_suffix(".keep").touch()
    git(work, "commit-graph", "write", "--reachable")
    git(work, "multi-pack-index", "write")
    return work


def conflicting(root: Path, *command: str) -> Path:
    """In the midst of a merge, rebase and the like, with what rerere keeps; the conflict is resolved as base has it."""
    work = in_place(root)
    git(work, "checkout", "-qb", "mine")
    commit(work, "mine\n", "mine")
    git(work, *command, fails=True)
    git(work, "checkout", "-q", "mine", "--", ".")
    return work


def bisecting(root: Path) -> Path:
    work = in_place(root)
    git(work, "bisect", "start", "gold", "base~1")
    return work


def noted(root: Path) -> Path:
    work = in_place(root)
    git(work, "notes", "add", "-m", GOLD.decode(), "base")
    git(work, "replace", "base", "gold^{commit}")
    (work / "file.py").write_text(GOLD.decode())
    git(work, "stash", "-q")
    (work / "lost").write_bytes(GOLD + b" lost")
    git(work, "hash-object", "-w", "lost")
    (work / "lost").unlink()
    git(work, "fsck", "--lost-found")
    git(work, "fetch", "-q", str(work), "gold")
    for name in ("ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "MERGE_MSG", "SQUASH_MSG", "gitk.cache", "description"):
        (work / ".git" / name).write_bytes(GOLD)
    return work


def grafted(root: Path) -> Path:
    work = in_place(root)
    (work / ".git/info").mkdir(exist_ok=True)
    (work / ".git/info/grafts").write_text(
        f"{git(work, 'rev-parse', 'base')} {git(work, 'rev-parse', 'gold^{commit}')}\n"
    )
    return work


def split(root: Path) -> Path:
    work = in_place(root)
    git(work, "checkout", "-q", "gold")
    git(work, "update-index", "--split-index")
    git(work, "checkout", "-q", "base")
    return work


def sparse(root: Path) -> Path:
    work = cloned(root, "--filter=blob:none", "--sparse")
    git(work, "sparse-checkout", "init", "--cone", "--sparse-index")
    return work


def unborn(root: Path) -> Path:
    work = in_place(root)
    git(work, "checkout", "-q", "--orphan", "new")
    return work


def staged(root: Path) -> Path:
    work = in_place(root)
    (work / "staged.py").write_text("staged alone\n")
    git(work, "add", "-A")
    return work


def superproject(root: Path) -> Path:
    work = in_place(root)
    git(work, "submodule", "--quiet", "add", str(source(root / "inner")), "inner")
    git(work, "commit", "-qm", "with inner")
    git(work / "inner", "checkout", "-q", "base")
    git(work, "submodule", "--quiet", "add", str(root / "inner"), "left")
    git(work, "submodule", "--quiet", "deinit", "-f", "left")
    return work


KINDS: dict[str, Callable[[Path], Path]] = {
    "made here": in_place,
    "sha256": lambda root: in_place(root, "--object-format=sha256"),
    "cloned": cloned,
    "one branch": lambda root: cloned(root, "--single-branch"),
    "shallow": shallow,
    "without blobs": lambda root: cloned(root, "--filter=blob:none"),
    "without trees": lambda root: cloned(root, "--filter=tree:0"),
    "of small blobs": lambda root: cloned(root, "--filter=blob:limit=10"),
    "sparse": sparse,
    "with hard links": local,
    "shared": lambda root: local(root, "--shared"),
    "by reference": lambda root: cloned(root, "--reference", str(source(root / "lender"))),
    "dissociated": lambda root: cloned(root, "--dissociate", "--reference", str(source(root / "lender"))),
    "separate": separate,
    "linked": linked,
    "with linked": with_linked,
    "of a bundle": bundled,
    "mirrored": mirrored,
    "kept pack": kept_pack,
    "in a merge": lambda root: conflicting(root, "merge", "gold"),
    "in a rebase": lambda root: conflicting(root, "rebase", "--onto", "mine", "base", "gold"),
    "in a rebase by patches": lambda root: conflicting(root, "rebase", "--apply", "--onto", "mine", "base", "gold"),
    "in a pick": lambda root: conflicting(root, "cherry-pick", "gold"),
    "in a bisection": bisecting,
    "notes and the like": noted,
    "grafted": grafted,
    "split index": split,
    "unborn": unborn,
    "staged": staged,
    "superproject": superproject,
}


def readable(work: Path) -> set[str]:
    return set(git(work, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split())


def led_to(work: Path) -> set[str]:
    """The objects that HEAD and the index lead to."""
    born = subprocess.run(["git", "-C", str(work), "rev-parse", "-q", "--verify", "HEAD"], check=False).returncode == 0
    found = git(work, "rev-list", "--objects", "--missing=allow-any", "HEAD").splitlines() if born else []
    return {line.split()[0] for line in found} | {line.split()[1] for line in git(work, "ls-files", "-s").splitlines()}


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    try:
        return data + zlib.decompress(data)
    except zlib.error:
        return data


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_that_can_be_read_is_an_ancestors_or_the_indexs(kind: str, tmp_path: Path) -> None:
    work = KINDS[kind](tmp_path)
    status, head = (
        git(work, "--no-replace-objects", "status", "--porcelain"),
        "" if kind == "unborn" else git(work, "rev-parse", "HEAD"),
    )
    subprocess.run(argv_of("hide_history", str(work), ""), check=True)
    assert not (tmp_path / "elsewhere").exists()
    repositories = [place.parent for place in work.rglob(".git")]
    assert work in repositories
    for place in repositories:
        assert (place / ".git").is_dir()
        assert readable(place) <= led_to(place)
        assert git(place, "for-each-ref", "--format=%(refname)") in ("refs/heads/work", "")
        assert not [path for path in (place / ".git").rglob("*") if path.is_file() and GOLD in unpacked(path)]
    assert not {path.name for path in (work / ".git").iterdir()} - {
        *("HEAD", "config", "hooks", "index", "info", "objects", "refs", "shallow")
    }
    assert git(work, "status", "--porcelain") == status
    assert head == ("" if kind == "unborn" else git(work, "rev-parse", "HEAD"))
    # The agent can go on working with it.
    (work / "more.py").write_text("more\n")
    git(work, "add", "more.py")
    git(work, "commit", "-qm", "more")

"""Finding control groups of both versions, and the second one's on a tree that behaves like the kernel's."""

from pathlib import Path

import pytest
from rollout_sandbox.confined.limits import (
    ControlGroup,
    Hierarchies,
    hierarchies,
    kills_of_group,
    sweep_groups,
)

FIRST_VERSION = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:31 /docker/abc /sys/fs/cgroup/with\\040space rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
FILES = {
    "cgroup.procs": "",
    "cgroup.freeze": "0",
    "cgroup.events": "populated 1\nfrozen 1\n",
    "cgroup.controllers": "cpu memory",
    "cgroup.subtree_control": "",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.events": "low 0\nhigh 0\noom_kill 3\n",
}


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A group of the second version, delegated with its controllers switched on."""
    plain_mkdir, plain_rmdir = Path.mkdir, Path.rmdir

    def fill(path: Path) -> None:
        for name, text in FILES.items():
            (path / name).write_text(text)

    def mkdir(path: Path) -> None:
        plain_mkdir(path)
        fill(path)

    def rmdir(path: Path) -> None:
        for name in FILES:
            (path / name).unlink()
        plain_rmdir(path)

    fill(tmp_path)
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)
    return tmp_path


HYBRID = "4:memory:/docker/abc/x\n2:cpu,cpuacct:/a\n1:name=systemd:/\n0::/\n"
FREEZER = "36 31 0:33 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("own", "mounts", "named", "unified"),
    [
        (HYBRID, FIRST_VERSION, {"cpu": "cpu,cpuacct/a", "memory": "with space/x"}, ["unified"]),
        ("5:freezer:/a\n", FREEZER, {"freezer": "freezer/a"}, []),
        ("4:memory:/elsewhere\n0::/\n", FIRST_VERSION, {}, ["unified"]),
        ("0::/user.slice/x.service\n", UNIFIED, {}, ["user.slice/x.service", "user.slice"]),
    ],
    ids=["hybrid", "freezer", "outside of what is mounted", "unified, and the one above"],
)
def test_the_groups_of_a_host_are_found(own: str, mounts: str, named: dict[str, str], unified: list[str]) -> None:
    root = Path("/sys/fs/cgroup")
    wanted = {name: root / path for name, path in named.items()}
    assert hierarchies(own, mounts) == Hierarchies(wanted, tuple(root / path for path in unified))


def test_the_second_version_limits_a_group_of_two_parts_and_freezes_one(tree: Path) -> None:
    group = ControlGroup(Hierarchies({}, (tree,)), "box", 1 << 30)
    (made,) = tree.glob("confined-sandbox-*-box")
    assert ((made / "memory.max").read_text(), (made / "memory.swap.max").read_text()) == (str(1 << 30), "0")
    assert group.limits_memory
    assert group.memory_kills() == (0, 3)
    with (made / "memory.events").open("a") as events:
        events.write("oom 1\n")
    assert group.memory_kills() == (3, 0)
    with group.entries() as (entries, entries_alone):
        assert (len(entries), len(entries_alone)) == (1, 1)
        assert entries != entries_alone
    assert group.freeze()
    assert [(made / part / "cgroup.freeze").read_text() for part in ("main", "alone")] == ["1", "0"]
    group.thaw()
    assert (made / "main" / "cgroup.freeze").read_text() == "0"
    group.remove()
    assert not made.exists()


@pytest.mark.parametrize(("name", "usual", "ours"), [("cpu.weight", 100, 25), ("cpu.shares", 1024, 256)])
def test_a_sandbox_weighs_less_than_the_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, usual: int, ours: int
) -> None:
    made = Path.mkdir

    def as_the_kernel_makes_them(path: Path) -> None:
        made(path)
        (path / name).write_text(f"{usual}\n")

    monkeypatch.setattr(Path, "mkdir", as_the_kernel_makes_them)
    group = ControlGroup(Hierarchies({"cpu": tmp_path}), "box", None)
    (box,) = tmp_path.glob("confined-sandbox-*-box")
    assert int((box / name).read_text()) == ours
    (box / name).unlink()
    group.remove()
    assert not box.exists()


def test_without_a_delegated_controller_there_is_no_memory_limit(tree: Path) -> None:
    (tree / "cgroup.subtree_control").write_text("")
    (tree / "cgroup.controllers").write_text("cpu")
    group = ControlGroup(Hierarchies({}, (tree,)), "box", 1 << 30)
    assert not group.limits_memory
    group.remove()


def test_what_a_dead_evaluation_left_is_swept_and_what_a_living_one_has_is_not(tree: Path) -> None:
    living = ControlGroup(Hierarchies({}, (tree,)), "living", None)
    (alive,) = tree.glob("confined-sandbox-*-living")
    namespace = alive.name.split("-")[2]
    dead = tree / f"confined-sandbox-{namespace}-1-1-dead"
    dead.mkdir()
    sweep_groups(Hierarchies({}, (tree,)))
    assert alive.exists()
    assert not dead.exists()
    living.remove()


def test_what_another_sandboxs_limit_ended_is_counted_for_that_one_only(tmp_path: Path) -> None:
    """As the first version counts: a killed process in its own group, wherever memory was short."""
    for name, kills, used in (("ours", 0, 5), ("at its limit", 1, 1000), ("the machine's", 2, 5)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
        (tmp_path / name / "memory.max_usage_in_bytes").write_text(f"{used << 20}\n")
        (tmp_path / name / "memory.limit_in_bytes").write_text(f"{1000 << 20}\n")
    found = [kills_of_group(tmp_path / name) for name in ("ours", "at its limit", "the machine's")]
    assert found == [(0, 0), (1, 0), (0, 2)]

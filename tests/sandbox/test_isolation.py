"""What the agent cannot do from inside the sandbox."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollout_sandbox.confined import (
    Bind,
    ConfinedRuntime,
    LocalSandboxConfig,
    bubblewrap,
    provision_confined,
    require_private_workdir,
)
from rollout_sandbox.confined.directory import ROOT
from verifiers.v1.errors import SandboxError, TaskError

from .conftest import confined, probe, sh

pytestmark = pytest.mark.usefixtures("sandboxes")


async def test_no_known_way_out_works_and_no_capability_is_left(runtime: ConfinedRuntime) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_bytes()
    result = await probe(runtime, "escape.py")
    assert (result.exit_code, result.stdout) == (0, ""), result
    assert Path("/proc/sys/kernel/core_pattern").read_bytes() == before


async def test_process_one_cannot_be_traced_read_starved_or_killed_from_inside(runtime: ConfinedRuntime) -> None:
    result = await probe(runtime, "attack_process_one.py")
    assert (result.exit_code, result.stdout) == (0, ""), result
    assert (await sh(runtime, "kill -9 1; kill -INT 1; kill -STOP 1; echo alive")).stdout == "alive\n"
    assert await runtime.alive()


async def test_a_service_that_was_there_before_the_agent_cannot_be_made_to_run_code(runtime: ConfinedRuntime) -> None:
    await runtime.run_background(["sleep", "7345.5"], {}, "/tmp/service.log")
    found = await sh(runtime, "for p in /proc/[0-9]*; do grep -qz 7345.5 $p/cmdline && echo ${p#/proc/}; done")
    result = await probe(runtime, "enter_process.py", found.stdout.split()[0])
    assert (result.exit_code, result.stdout) == (0, ""), result


@pytest.mark.parametrize("workdir", ["/", "/usr", "/usr/local/work", "/bin/x", "/proc/x", "/etc", "/.vf/x"])
def test_a_work_directory_that_would_hide_the_system_is_refused(workdir: str) -> None:
    with pytest.raises(TaskError, match="part of the system"):
        require_private_workdir(workdir)


async def test_no_host_path_is_there(runtime: ConfinedRuntime) -> None:
    paths = "/etc/passwd /etc/shadow /etc/ssh /root/.bashrc /var/log /sys/kernel /opt /srv /mnt /boot"
    assert (await sh(runtime, f"ls -d {paths}")).stdout == "/etc/passwd\n"


async def test_the_users_home_and_temporary_files_are_not_there(runtime: ConfinedRuntime, host_secret: Path) -> None:
    assert (await runtime.run(["cat", str(host_secret)], {})).exit_code == 1
    with pytest.raises(SandboxError, match="No such file"):
        await runtime.read(str(host_secret))
    assert (await sh(runtime, f"ls -A {ROOT} /.cache/verifiers/runtimes/{ROOT.name}; ls -A /home")).stdout == "agent\n"


async def test_this_projects_sources_and_installed_packages_are_not_there(runtime: ConfinedRuntime) -> None:
    import opencode_env
    import verifiers

    for module in (opencode_env, verifiers):
        assert module.__file__ is not None
        assert (await runtime.run(["test", "-e", module.__file__], {})).exit_code == 1


async def test_nothing_of_the_hosts_environment_comes_in_but_the_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIME_API_KEY", "secret")
    monkeypatch.setenv("SOME_SETTING", "let in")
    monkeypatch.setenv("LC_ALL", "C")
    async with provision_confined(LocalSandboxConfig(env_allow=["SOME_SETTING"]), env={"TASK": "1"}) as box:
        lines = (await box.run(["env"], {"CALL": "2"})).stdout.splitlines()
    names = {line.split("=")[0] for line in lines}
    assert names <= {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "LC_ALL", "SOME_SETTING"),
        *("TASK", "CALL", "SANDBOX_COMMAND"),
        *(name for name in os.environ if name.startswith("LC_")),
    }
    assert {"SOME_SETTING=let in", "LC_ALL=C", "TASK=1", "CALL=2", "HOME=/home/agent"} <= set(lines)


async def test_host_processes_and_neighbours_cannot_be_seen_or_signalled(runtime: ConfinedRuntime) -> None:
    async with confined() as neighbour:
        await neighbour.run_background(["sleep", "1000"], {}, "log")
        seen = (await sh(runtime, "cat /proc/[0-9]*/comm")).stdout.split()
        assert "sleep" not in seen
        assert len(seen) <= 4
        assert (await sh(runtime, f"kill -0 {os.getpid()}")).exit_code != 0
        await sh(runtime, "kill -9 -1")
        assert "sleep" in (await neighbour.run(["sh", "-c", "cat /proc/[0-9]*/comm"], {})).stdout


async def test_a_command_inherits_three_descriptors_and_nothing_else(runtime: ConfinedRuntime) -> None:
    result = await runtime.run(["python3", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"], {})
    assert result.stdout == "['0', '1', '2', '3']\n"  # 3 is the listing itself


@pytest.fixture
def _as_under_nohup() -> Iterator[None]:
    """This process ignores what a shell lets its background jobs ignore."""
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_IGN) for number in ignored]
    yield
    for number, handler in zip(ignored, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_as_under_nohup")
async def test_signal_dispositions_are_the_default_ones_whatever_the_host_ignores() -> None:
    async with confined() as box:
        result = await box.run(["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"], {})
    _, blocked, _, ignored = result.stdout.split()
    internal = 0b11 << 31  # glibc's posix_spawn ignores its own two signals
    assert (int(blocked, 16), int(ignored, 16) & ~internal) == (0, 0)


async def test_a_bind_is_visible_and_read_only(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho from the host\n")
    (tmp_path / "tool").chmod(0o755)
    tmp_path.chmod(0o755)
    async with confined(Bind(tmp_path, "/opencode")) as box:
        assert (await box.run(["/opencode/tool"], {})).stdout == "from the host\n"
        assert (await box.run(["sh", "-c", "echo x > /opencode/tool || rm /opencode/tool"], {})).exit_code != 0
        with pytest.raises(SandboxError, match="Read-only"):
            await box.write("/opencode/tool", b"x")
    assert "from the host" in (tmp_path / "tool").read_text()


@pytest.mark.parametrize("target", ["/tmp/way/to/tool", "/home/agent/way/to/tool", "/home/user/to/tool", "/app/tool"])
async def test_the_way_to_a_bind_in_a_writable_place_cannot_be_replaced(tmp_path: Path, target: str) -> None:
    (tmp_path / "tool").write_text("trusted")
    way = Path(target).parts
    async with confined(Bind(tmp_path / "tool", target)) as box:
        for length in range(2, len(way) + 1):
            part = str(Path(*way[:length]))
            assert (await box.run(["mv", "-T", part, "/tmp/moved"], {})).exit_code != 0
            assert (await box.run(["rm", "-rf", part], {})).exit_code != 0
        assert await box.read(target) == b"trusted"
        assert (await box.run(["sh", "-c", "cd && echo x > y && mkdir -p /home/z /tmp/z /app/z"], {})).exit_code == 0
    assert (tmp_path / "tool").read_text() == "trusted"


async def test_links_to_a_bind_lie_in_private_directories_and_lead_to_what_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("trusted")
    tmp_path.chmod(0o755)
    private = "/var/tmp/vf-tool/bin/tool"
    bind = Bind(tmp_path, "/opt/tools", ((private, "tool"),))
    async with confined(bind) as one, confined(bind) as two:
        assert (await one.run(["sh", "-c", f"echo x > {private}"], {})).exit_code != 0
        assert (await one.run(["sh", "-c", f"echo own > {private}.lock && rm {private}"], {})).exit_code == 0
        assert await two.read(private) == b"trusted"
        assert (await two.run(["ls", "/var/tmp/vf-tool/bin"], {})).stdout == "tool\n"
    assert [path.name for path in tmp_path.iterdir()] == ["tool"]


async def test_packages_installed_without_a_virtual_environment_are_hidden_and_cannot_be_planted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    tmp_path.chmod(0o755)
    (packages / "answers.txt").write_text("42")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(packages))
    for python_env, listing in ((False, ""), (True, "answers.txt\n")):
        async with confined(Bind(tmp_path, str(tmp_path)), python_env=python_env) as box:
            assert (await box.run(["ls", "-A", str(packages)], {})).stdout == listing
            assert (await box.run(["touch", f"{packages}/planted.py"], {})).exit_code != 0
    assert [path.name for path in packages.iterdir()] == ["answers.txt"]


async def test_a_workdir_elsewhere_is_private_and_writable() -> None:
    async with provision_confined(LocalSandboxConfig(), workdir="/testbed/repo") as box:
        await box.write("x", b"1")
        assert (await box.run(["sh", "-c", "pwd; cat x"], {})).stdout == "/testbed/repo\n1"


def test_packages_are_hidden_where_the_host_is_shown_and_nothing_is_mounted_where_an_agent_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's link in the place of a parent would lead a bubblewrap before 0.12 out of the sandbox."""
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    place, options = str(tmp_path.parent), LocalSandboxConfig()
    assert bubblewrap._hidden_packages(options, [Bind(tmp_path.parent, place)]) == [str(tmp_path)]
    assert bubblewrap._hidden_packages(options, [Bind(ROOT / "of-an-agent/home", place)]) == []

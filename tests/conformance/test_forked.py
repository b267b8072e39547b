"""A forked program is what it would be if it had been executed: the same probe told from both sides."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rollout_sandbox.confined import directory

from tests.support.child import child
from tests.support.forked import Forked
from tests.support.processes import alive, parent_of
from tests.support.programs import finished, own_variables
from tests.support.user_home import UserHome
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
ORIGINAL_PROGRAM = Path(sys.executable).with_name("vf-eval")
PROBE = """
import atexit, json, multiprocessing, os, resource, signal, sys, tempfile, threading

def seen():
    main = sys.modules["__main__"]
    own = {name: open(f"/proc/self/{name}", "rb").read().rstrip(b"\\0").decode() for name in ("cmdline", "environ")}
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(abs, (-1,))
    return {
        **own, "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "cwd": os.getcwd(),
        "variables": dict(os.environ), "home": os.path.expanduser("~"), "temporary": tempfile.gettempdir(),
        "main": [main.__name__, main.__file__, main.__spec__ and main.__spec__.name, main.__package__],
        "signals": [str(signal.getsignal(one)) for one in signals], "mask": len(signal.pthread_sigmask(0, [])),
        "streams": [os.readlink(f"/proc/self/fd/{n}") == "/dev/null" for n in range(3)],
        "descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(),
        "buffered": [sys.stdout.line_buffering, sys.stderr.line_buffering], "flags": str(sys.flags),
        "limits": [resource.getrlimit(one) for one in range(16)], "spawned": spawned, "executable": sys.executable,
        "exe": os.readlink("/proc/self/exe"), "bytes": sys.dont_write_bytecode, "nice": os.nice(0),
        "imported": "numpy" in sys.modules,
    }

if __name__ == "__main__":
    json.dump(seen(), sys.stdout)
    atexit.register(print, "the end", file=sys.stderr)
    word = sys.argv[-1]
    if word == "wait":
        print("waits", file=sys.stderr)
        signal.pause()
    if word.startswith("raise "):
        raise eval(word.removeprefix("raise "))
"""

pytestmark = pytest.mark.usefixtures("sandboxes")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "probe_program.py").write_text(PROBE)
    return tmp_path


def variables(place: Path) -> dict[str, str]:
    """Of a user with a home of their own and plugins."""
    path = f"{place / 'plugins'}:{place}"
    return own_variables(HOME=str(place / "home"), TMPDIR=str(place), PYTHONPATH=path, A="b=c\n")


@pytest.mark.parametrize(
    ("form", "word"),
    [
        (["probe_program.py"], "raise SystemExit('said')"),
        (["./probe_program.py"], "raise SystemExit(7)"),
        (["-m", "probe_program"], "raise OSError(3)"),
        (["-m", "probe_program"], "an argument"),
    ],
)
def test_a_forked_program_sees_what_an_executed_one_sees(place: Path, form: list[str], word: str) -> None:
    argv = [sys.executable, *form, "", word]
    streams: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    executed = subprocess.run(argv, cwd=place, env=variables(place), check=False, **streams)
    forked = finished(argv, place, variables(place))
    assert json.loads(forked.stdout) == json.loads(executed.stdout) | {"imported": True}
    assert forked.returncode == executed.returncode
    assert forked.stderr.splitlines()[-2:] == executed.stderr.splitlines()[-2:]
    assert "the end" in forked.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
async def test_a_signal_ends_it_as_it_ends_any_process(place: Path, number: signal.Signals) -> None:
    log = place / "log"
    with log.open("wb") as error:
        program = Forked([sys.executable, "probe_program.py", "wait"], place, variables(place), error)
    await until(lambda: "waits" in log.read_text())
    assert program.poll() is None
    os.kill(program.pid, number)
    assert await program.ended() == program.wait() == -number
    assert ("the end" in log.read_text()) == (number == signal.SIGINT)
    assert not alive(program.pid)
    program.kill()  # which is of no effect


def test_who_waits_too_long_is_told(place: Path) -> None:
    with (place / "log").open("wb") as error:
        program = Forked([sys.executable, "probe_program.py", "wait"], place, variables(place), error)
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.01)
    program.terminate()
    assert program.wait(60) == -signal.SIGTERM


SERVED = f"""
import sys
from pathlib import Path
sys.path.append({str(ROOT)!r})
from tests.support.forked import Forked, address
for name, server in (("log", None), ("tied", address())):
    with open(name, "wb") as error:
        print(Forked([sys.executable, "probe_program.py", "wait"], Path.cwd(), dict(), error, server=server).pid)
sys.stdin.read()
"""


async def test_it_lives_on_when_who_started_it_and_its_server_have_ended_unless_it_is_tied(place: Path) -> None:
    environment = {"PATH": os.environ["PATH"]}  # without the server of this run: it starts one of its own
    own: dict[str, Any] = {"cwd": place, "env": environment, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with child(sys.executable, "-u", "-c", SERVED, **own) as starter:
        assert starter.stdout is not None
        pid, tied = (int(starter.stdout.readline()) for _ in range(2))
        await until(lambda: all("waits" in (place / name).read_text() for name in ("log", "tied")))
        server = parent_of(pid)
        starter.kill()
        try:
            await until(lambda: not alive(tied) and not alive(server))
            assert alive(pid)
        finally:
            for one in filter(alive, (pid, tied)):
                os.kill(one, signal.SIGKILL)
    await until(lambda: not alive(pid))


CPU = "import time\nwhile time.process_time() < 0.3: pass\n"
PARENT = f"""
import os, sys
from pathlib import Path
sys.path.append({str(ROOT)!r})
from tests.support.forked import Forked
Forked([sys.executable, "busy.py"], Path.cwd(), dict(os.environ), sys.stderr.buffer).wait()
"""


def test_its_time_is_counted_with_that_of_what_it_started(place: Path) -> None:
    (place / "busy.py").write_text(CPU)
    (place / "parent.py").write_text(PARENT)
    before = Forked.cpu_seconds
    assert finished([sys.executable, "parent.py"], place, own_variables()).returncode == 0
    assert Forked.cpu_seconds - before > 0.3


SHOWS = """
import gc, json, sys
from pathlib import Path
imported_before = "rollout_sandbox" in sys.modules
import a_plugin
from rollout_sandbox.confined.directory import ROOT, sweep
gc.unfreeze()
others = [
    str(value) for one in gc.get_objects() if isinstance(one, (dict, list, tuple, set))
    for value in list(one.values() if isinstance(one, dict) else one)
    if isinstance(value, (str, Path)) and "/".join(["-home", ".c"]) in str(value)
]
print(json.dumps([str(ROOT), str(*sweep.__defaults__), imported_before, a_plugin.NAME, others]))
"""


def test_what_is_read_on_import_is_read_by_each_program(place: Path) -> None:
    (place / "shows.py").write_text(SHOWS)
    (place / "plugins").mkdir()
    (place / "plugins" / "a_plugin.py").write_text("NAME = 'mine'")
    done = finished([sys.executable, "shows.py"], place, variables(place))
    root = str(place / "home" / ".cache" / "verifiers" / "runtimes" / directory.ROOT.name)
    assert json.loads(done.stdout) == [root, root, True, "mine", []], done.stderr


@pytest.mark.parametrize("name", ["PYTHONUNBUFFERED", "SYMPY_DEBUG"])
def test_with_variables_that_are_read_before_it_is_executed(place: Path, name: str) -> None:
    (place / "tells.py").write_text("import sys\nprint('rollout_sandbox' in sys.modules)\n")
    told = [finished([sys.executable, "tells.py"], place, variables(place) | extra) for extra in ({}, {name: "False"})]
    assert [(done.returncode, done.stdout) for done in told] == [(0, "True\n"), (0, "False\n")]


def test_what_is_no_program_of_a_python_is_executed(place: Path) -> None:
    program = place / "vf-eval"
    program.write_text("#!/bin/sh\necho executed $1 $A; exit 3\n")
    program.chmod(0o755)
    done = finished([str(program), "word"], place, variables(place))
    assert (done.returncode, done.stdout) == (3, "executed word b=c\n")


def test_the_command_that_is_forked_is_the_installed_one(place: Path) -> None:
    home = UserHome(place / "user")
    told: dict[str, Any] = {}
    for how, extra in (("forked", {}), ("executed", {"PYTHONUNBUFFERED": "1"})):
        done = finished([str(ORIGINAL_PROGRAM), "opencode-env", "--nonsense"], home.work, home.environment(extra))
        # What is printed as the environment is imported was printed when the fork server did.
        told[how] = (done.returncode, done.stdout, done.stderr.removeprefix("loading the environment …\n"))
    assert told["forked"] == told["executed"]
    assert told["forked"][0] == 1

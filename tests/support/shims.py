"""Programs of this Python that other programs start, and that are forked all the same."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.forked import Forked, address
from tests.support.programs import finished

_SHIM = """\
#!{python} -ISE
import json, os, signal, socket, sys

ends = signal.SIGTERM, signal.SIGINT
signal.pthread_sigmask(signal.SIG_BLOCK, ends)
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
asked = {{"argv": {argv!r} + sys.argv[1:] + {added!r}, "directory": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(connection, [b" "], [0, 1, 2])
connection.sendall(json.dumps(asked).encode())
connection.shutdown(socket.SHUT_WR)
told = connection.makefile()
pid = json.loads(told.readline())["pid"]
for number in ends:
    signal.signal(number, lambda number, frame: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
ended = json.loads(told.readline())
with open(__file__ + ".costs", "a") as costs:
    costs.write(f"{{ended['cpu']}} {{asked['argv'][:5]}}\\n")
sys.exit(ended["code"])
"""
_RUN = """\
import runpy, sys

sys.executable = sys.argv[1]
del sys.argv[:2]
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def write_shim(path: Path, argv: Sequence[str], added: Sequence[str] = ()) -> None:
    """An executable that asks the process of `tests.support.programs` to fork a program with its arguments.

    Args:
        path: where it is written.
        argv: the program, and its first arguments.
        added: its last ones.
    """
    path.write_text(_SHIM.format(python=sys.executable, address=address(), argv=list(argv), added=list(added)))
    path.chmod(0o755)


@contextmanager
def counted(directory: Path) -> Iterator[None]:
    """What the shims of a directory have forked counts as started here."""
    try:
        yield
    finally:
        costs = "".join(file.read_text() for file in directory.glob("*.costs"))
        print(costs)
        Forked.cpu_seconds += sum(float(line.split()[0]) for line in costs.splitlines())


def finished_with_children(
    words: Sequence[str], directory: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS`, forked as are the Pythons and the `vf-eval` that it starts."""
    with tempfile.TemporaryDirectory() as scratch, counted(Path(scratch)):
        program, python, vf_eval = (Path(scratch) / name for name in ("run.py", "python", "vf-eval"))
        program.write_text(_RUN)
        write_shim(python, [sys.executable])
        write_shim(vf_eval, [str(Path(sys.executable).with_name("vf-eval"))])
        return finished([sys.executable, str(program), str(python), *words], directory, environment)

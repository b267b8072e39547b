"""Console blocks as a shell runs them: the commands of a page in one fresh directory, forked from one process.

A page is one script. Programs of this Python are shims on the path that ask the process of `tests.support.programs` to
fork them. `vf-eval` gets one task of its taskset and plays the light program as OpenCode. Ports and placeholders are
those of the test.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT, Block, blocks_of
from tests.support.shims import write_shim

BIN = Path(sys.executable).parent
ADDED = {"vf-eval": ["--no-rich", "--select.limit", "1"]}
"""What is given to a program beside what the page says."""
_SECONDS = 300
"""For which a page's commands may run."""
_BEGIN = """\
set -e
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
listens() {
    for _ in $(seq 600); do (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.1; done
    echo "nobody listens at $1"; return 1
}
"""


@dataclass(frozen=True)
class Command:
    """One command of a console block, and what it is shown to print."""

    text: str
    output: str

    @property
    def alone(self) -> str:
        """It without its comment."""
        return re.sub(r" +#.*", "", self.text)


def commands_of(block: Block) -> list[Command]:
    """The commands of a block: a line that begins with `$`, with its continuation lines and here-documents."""
    found: list[list[str]] = []
    shown: list[list[str]] = []
    end = None
    for line in block.text.splitlines():
        if end is not None:
            found[-1].append(line)
            end = None if line == end else end
        elif found and not shown[-1] and found[-1][-1].endswith("\\"):
            found[-1].append(line)
        elif line.startswith("$ "):
            found.append([line[2:]])
            shown.append([])
        elif shown:
            shown[-1].append(line)
        if (here := re.search(r"<<'(\w+)'$", line)) and end is None and line is not here[1]:
            end = here[1]
    return [Command("\n".join(one), "\n".join(two)) for one, two in zip(found, shown, strict=True)]


def shims(directory: Path) -> None:
    """Programs of this Python that are forked, and what stands for `pip`."""
    programs = {path.name: [str(path)] for path in BIN.glob("opencode-*")}
    programs |= {name: [str(BIN / name)] for name in ("vf-eval", "mathverdict", "pytest")}
    programs["python"] = [sys.executable]
    for name, argv in programs.items():
        write_shim(directory / name, argv, ADDED.get(name, []))
    pip = directory / "pip"
    pip.write_text('#!/bin/sh\nexec uv pip "$@" --quiet --python "$HOME/installed"\n')
    pip.chmod(0o755)


def files_of(page: Path) -> Iterator[tuple[str, str]]:
    """The files that a page shows: Python blocks whose first line is a comment with their name."""
    for block in blocks_of(page):
        if named := re.match(r"# (\w+\.py)\n", block.text):
            yield named[1], block.text


def script_of(page: Path, elsewhere: frozenset[str]) -> str:
    """The commands of a page as one script, which ends with the first that fails, and its programs with it.

    Args:
        page: the page.
        elsewhere: commands that another test runs.
    """
    lines = [_BEGIN]
    for block in blocks_of(page):
        if not block.is_run_here:
            continue
        for number, command in enumerate(commands_of(block)):
            if command.alone in elsewhere:
                continue
            lines.append(f"echo {marker(block, number)}")
            lines += ["set +e", command.text, "set -e"] if command.text.endswith("echo $?") else [command.text]
            if port := re.search(r"--port (\d+).*&$", command.alone):
                lines.append(f"listens {port[1]}")
    return "\n".join(lines) + "\n"


def marker(block: Block, number: int) -> str:
    """What a script prints before one command of a block."""
    return f"@@{block.line}.{number}"


def run_script(script: str, directory: Path, environment: Mapping[str, str]) -> tuple[str, int | None]:
    """Run a script in bash: what it printed, and its exit code; None where it did not end by itself."""
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            return running.communicate(timeout=_SECONDS)[0], running.returncode
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGTERM)
            return running.communicate(timeout=_SECONDS)[0], None


def looks_like(shown: str, printed: str) -> bool:
    """Whether what a page shows stands in what was printed: in order, numbers and paths aside, `…` for anything."""

    def plain(line: str) -> str:
        return re.sub(r"\d+(\.\d+)?", "#", " ".join(line.split()))

    left = [plain(line) for line in printed.splitlines()]
    for line in map(plain, shown.splitlines()):
        if line == "…":
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        at = next((number for number, one in enumerate(left) if pattern.fullmatch(one)), None)
        if at is None:
            return False
        left = left[at + 1 :]
    return True


def free_port() -> int:
    """A port where nobody listens now."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def variables(home: Path) -> dict[str, str]:
    """The variables of a shell that has the shims on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PATH": f"{home / 'bin'}:{ROOT / '.cache/uv/bin'}:{os.environ['PATH']}", "HOME": str(home)}

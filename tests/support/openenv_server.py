"""A running `opencode-openenv`, started as a user would, at a home of its own."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forked import Forked
from tests.support.user_home import UserHome
from tests.support.waiting import wait_until

PROGRAM = Path(sys.executable).with_name("opencode-openenv")


@dataclass(frozen=True)
class RunningServer:
    """A server that listens."""

    process: Forked
    home: UserHome
    log_file: Path

    @property
    def log(self) -> str:
        """What it has said."""
        return self.log_file.read_text(errors="replace")

    @property
    def url(self) -> str:
        """Where it listens."""
        found = re.search(r"run_rollout is served at (http://\S+)", self.log)
        assert found is not None, self.log
        return found[1]


@contextmanager
def openenv_server(home: UserHome, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[RunningServer]:
    """A server at a free port of the loopback; killed on exit should it still run."""
    log = home.root / "server.log"
    with log.open("wb") as stderr:
        argv = [str(PROGRAM), "--port", "0", *arguments]
        process = Forked(argv, home.work, home.environment(env), stderr, stderr)
    server = RunningServer(process, home, log)
    try:
        wait_until(lambda: "is served at" in server.log or process.poll() is not None)
        assert process.poll() is None, server.log
        yield server
    finally:
        process.kill()
        process.wait()


def spoken_by(python: Path | str, program: Path, *arguments: Any, timeout: float = 300) -> Any:
    """What a client program says (a line of JSON, its last) when another Python runs it."""
    argv = [str(python), str(program), *(json.dumps(argument) for argument in arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])

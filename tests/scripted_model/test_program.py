"""`python -m opencode_env.scripted_model` as users start it."""

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from opencode_env.samples import load_samples
from opencode_env.scripted_model import LABEL

from tests.support.forked import Forked
from tests.support.programs import finished, own_variables
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("programs")

COMMAND = [sys.executable, "-m", "opencode_env.scripted_model"]


@contextmanager
def running(*options: str) -> Iterator[tuple[Forked, str, IO[str]]]:
    """The program, the URL it printed, and what it goes on to print; killed at the end if it still runs."""
    reads, writes = os.pipe()
    with open(reads) as said:
        with open(writes, "wb") as output:
            process = Forked([*COMMAND, *options], Path.cwd(), own_variables(), output, output)
        try:
            line = said.readline()
            assert line.startswith(f"{LABEL}: http://127.0.0.1:"), line
            yield process, line.split()[-1], said
        finally:
            process.kill()
            process.wait()


def run(*options: str) -> "subprocess.CompletedProcess[str]":
    """The program to its end."""
    return finished([*COMMAND, *options], Path.cwd(), own_variables())


def ask(url: str, prompt: str) -> Any:
    """One plain chat request."""
    data = json.dumps({"messages": [{"role": "user", "content": prompt}]}).encode()
    with urllib.request.urlopen(f"{url}/chat/completions", data, timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)["choices"][0]["message"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_writes_its_port_answers_and_ends_cleanly_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    with running("--port-file", str(port_file)) as (process, url, said):
        assert url == f"http://127.0.0.1:{int(port_file.read_text())}/v1"
        assert ask(url, load_samples()[0].question)["content"] == "Sample task fix-median"
        process.send_signal(number)
        assert (process.wait(PATIENCE_SECONDS), said.read()) == (0, "")
    assert not port_file.exists()


def test_a_hanging_request_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "never", "faults": [{"kind": "hang", "after": 0}]}]')
    body = b'{"messages": [{"role": "user", "content": "x"}], "stream": true}'
    with (
        running("--script", str(script)) as (process, url, _),
        urllib.request.urlopen(f"{url}/chat/completions", body, timeout=PATIENCE_SECONDS) as answer,
    ):
        assert answer.readline().startswith(b"data: ")
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
        with pytest.raises(http.client.IncompleteRead):
            answer.read()


def test_it_plays_a_script_with_faults_from_another_file(tmp_path: Path) -> None:
    script, faults = tmp_path / "script.json", tmp_path / "faults.json"
    script.write_text('[{"text": "scripted"}]')
    faults.write_text('{"0": [{"kind": "status", "status": 503, "attempts": 1}]}')
    with running("--script", str(script), "--faults", str(faults)) as (_, url, _):
        with pytest.raises(urllib.error.HTTPError, match="503"):
            ask(url, "hello")
        assert ask(url, "hello")["content"] == "scripted"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--success-rate", "2"], "must be from 0 to 1"),
        (["--script", "/nowhere/script.json"], "/nowhere/script.json"),
        (["--port", "many"], "invalid int value"),
    ],
)
def test_bad_options_are_refused_in_a_line(options: list[str], message: str) -> None:
    done = run(*options)
    assert (done.returncode, message in done.stderr.splitlines()[-1]) == (2, True), done


def test_a_taken_port_is_one_clear_line() -> None:
    with running() as (_, url, _):
        port = url.rsplit(":", 1)[1].removesuffix("/v1")
        done = run("--port", port)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.partition(": ")[0]) == (1, f"the scripted model cannot listen on 127.0.0.1:{port}")


def test_help_says_what_it_is_and_shows_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert LABEL in done.stdout.replace("\n", " ")
    assert "examples:" in done.stdout

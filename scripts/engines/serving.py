"""Serves the small model with one version of vLLM, on the loopback."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.engines.installation import PLACE, install, python

MODELS = ("smol", "org/main-model", "org/sub-model", "scripted-model")
"""Names that the one model is served under; the last is what the tests' `vf-eval` asks for."""
WINDOW = 32_768
START_S = 600.0
"""Seconds that an engine may take until it answers; 30 to 90 on a quiet machine."""


def command(version: str, port: int, *options: str, window: int = WINDOW) -> list[str]:
    """The command line of an engine; `options` are further ones of vLLM's."""
    minor = int(version.split(".")[1])
    argv = [str(python()), "-m", "vllm.entrypoints.cli.main", "serve", str(PLACE / "model")]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", *MODELS]
    argv += ["--dtype", "bfloat16", "--max-model-len", str(window), "--max-num-seqs", "4", "--enforce-eager"]
    argv += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--logprobs-mode", "processed_logprobs"]
    return [*argv, *(["--enable-scale-out"] if minor >= 30 else []), *options]


def environment(version: str) -> dict[str, str]:
    """Variables of an engine: nothing is fetched, and two threads compute."""
    own = {
        "PYTHONPATH": str(PLACE / f"vllm-{version}"),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",  # than the model was trained with
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    kept = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return {**kept, **own}


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def engine(version: str, port: int, *options: str, window: int = WINDOW) -> Iterator[str]:
    """A running engine's base URL, with /v1; it is ended with the context.

    Raises:
        RuntimeError: it ended, or answers nothing within `START_S`; the message has the end of its log.
    """
    install(version)
    log = PLACE / f"vllm-{version}.log"
    with log.open("wb") as out:
        argv = command(version, port, *options, window=window)
        process = subprocess.Popen(
            argv, env=environment(version), stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        started = time.monotonic()
        while not _answers(port):
            if process.poll() is not None or time.monotonic() - started > START_S:
                raise RuntimeError(f"vLLM {version} does not answer: {_end(log)}")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _stop(process)


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the engine and the processes that it started: they are its session's."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(30)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def serve(version: str, port: int, options: Sequence[str]) -> None:
    """Become the engine; returns never."""
    install(version)
    argv = command(version, port, *options)
    os.execvpe(argv[0], argv, environment(version))

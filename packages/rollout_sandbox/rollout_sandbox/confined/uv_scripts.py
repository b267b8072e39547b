"""PEP 723 scripts, prepared on the host and shown to every sandbox read-only.

One environment per script content and interpreter serves all sandboxes of a user; a half-made one is never used.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, PIPE

from verifiers.v1.errors import SandboxError
from verifiers.v1.utils.aio import run_shielded
from verifiers.v1.utils.paths import CACHE_DIR

from rollout_sandbox.confined.interpreter import base_python, interpreter_roots
from rollout_sandbox.file_lock import locked_async, private_directory

SCRIPTS = CACHE_DIR / "runtimes" / "confined-scripts"
"""Bound into every sandbox. Locks lie elsewhere: a file that an agent can read is a file it can lock."""
_LOCKS = CACHE_DIR / "runtimes" / "confined-script-locks"


async def _sync(script: Path, environment: Path, settings: Mapping[str, str]) -> None:
    if (uv := shutil.which("uv")) is None:
        raise SandboxError("a script with dependencies needs uv on the host, but uv is not on PATH: install it")
    env = {
        **os.environ,
        **settings,
        "VIRTUAL_ENV": str(environment),
        "UV_OFFLINE": "false",
        "TMPDIR": str(_LOCKS),  # uv leaves a lock file of the script there
        # Only interpreters that the sandbox can see: the base installation, the system's, or one that uv adds here.
        "PATH": ":".join([*(f"{root}/bin" for root in interpreter_roots()), "/usr/local/bin", "/usr/bin", "/bin"]),
        "UV_PYTHON_PREFERENCE": "system",
        "UV_PYTHON_INSTALL_DIR": str(SCRIPTS / "python"),
    }
    # No sandbox can compile what it cannot change, so each would for itself.
    command = (uv, "sync", "--script", str(script), "--active", "--quiet", "--no-config", "--compile-bytecode")
    problem = await _run(*command, cwd=script.parent, env=env)
    interpreter = (environment / "bin" / "python").resolve()
    visible = any(interpreter.is_relative_to(root) for root in (*interpreter_roots(), "/usr", str(SCRIPTS)))
    if problem is None and not visible:
        # A wrapper around uv (pyenv's, for one) puts its own interpreters on PATH.
        problem = await _run(*command, "--python", base_python(), cwd=script.parent, env=env)
    if problem is not None:
        raise SandboxError(f"failed to prepare uv script: {problem}")


async def _run(*argv: str, cwd: Path, env: Mapping[str, str]) -> str | None:
    process = await asyncio.create_subprocess_exec(
        *argv, env=env, cwd=cwd, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, start_new_session=True
    )
    try:
        _, stderr = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await run_shielded(process.communicate())
        raise
    return None if process.returncode == 0 else stderr.decode(errors="replace").strip()[-2000:]


async def prepare_script(data: bytes, settings: Mapping[str, str]) -> tuple[str, str]:
    """Return (interpreter, script), paths that are the same on the host and in every sandbox. The script is trusted,
    since uv builds its dependencies on the host; `settings` are environment variables for uv, over the host's."""
    key = hashlib.sha256(b"\0".join((base_python().encode(), data))).hexdigest()[:32]
    home = SCRIPTS / key
    script, environment, ready = home / "script.py", home / "venv", home / "ready"
    if not ready.exists():
        async with locked_async(private_directory(_LOCKS) / key):
            if not ready.exists():
                shutil.rmtree(home, ignore_errors=True)
                home.mkdir(parents=True)
                script.write_bytes(data)
                await _sync(script, environment, settings)
                ready.touch()
    return str(environment / "bin" / "python"), str(script)

"""Where scoring works: a home, a temporary directory and settings that the agent had no hand in.

Everything named here was made after the agent ended. Programs read no start-up file, module, plugin or configuration
from the agent's home, and of git's settings in the work directory none that run a program by themselves. No link of the
agent's leads to what a verify command has itself: a file that is its own command line would hold whatever it looks for.

In a container whose agent is root and can have replaced its shell, statically linked programs of this machine are put
in place by the container's engine. Where there is no such shell or engine, nothing is promised.
"""

import asyncio
import io
import os
import secrets
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import verifiers.v1 as vf

from rollout_sandbox.compat import abilities_of
from rollout_sandbox.interface import AgentCode
from rollout_sandbox.programs import program_argv, program_text
from rollout_sandbox.toolbox.checked_run import ContainerEngine, engine_of, require_alive, run_for
from rollout_sandbox.toolbox.scoring import command_time

# The shell is bash and not busybox's, which would use its own applets for everything that an image may have better.
_SHELL, _TOOLS = "bash-static", "busybox"
_APPLETS = ("cat", "cmp", "chmod", "false", "mkdir", "mktemp", "rm", "sleep", "timeout", "true")
_SECONDS = 60.0
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_PT_INTERP = 3


async def put_own_shell(runtime: vf.Runtime) -> str:
    """The directory in a container of this machine that now holds our programs; empty where that cannot be."""
    engine, shell = engine_of(runtime), _static(_SHELL)
    if engine is None or shell is None:
        return ""
    directory = f".scoring-{secrets.token_hex(8)}"
    archive = await asyncio.to_thread(_archive, shell, _static(_TOOLS), directory)
    with command_time(runtime):
        return f"/{directory}" if await asyncio.to_thread(_copied, engine, archive) else ""


def _copied(engine: ContainerEngine, archive: bytes) -> bool:
    copying = [engine.program, "cp", "-", f"{engine.container}:/"]
    # podman 4 stores what it is given in a temporary file, and leaves it there.
    with tempfile.TemporaryDirectory(prefix="vf-own-shell-") as scratch:
        env = {**os.environ, "TMPDIR": scratch}
        try:
            done = subprocess.run(copying, input=archive, capture_output=True, timeout=_SECONDS, check=False, env=env)
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0


@cache
def _static(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found and is_static(Path(found)) else None


def is_static(program: Path) -> bool:
    """Whether an executable (64 bit, little-endian) names no interpreter, which would load libraries for it."""
    with program.open("rb") as file:
        header = file.read(64)
        if len(header) < 64 or not header.startswith(_ELF64_LITTLE):
            return False
        (offset,) = struct.unpack_from("<Q", header, 0x20)
        size, count = struct.unpack_from("<HH", header, 0x36)
        file.seek(offset)
        table = file.read(size * count)
    return all(struct.unpack_from("<I", table, size * number)[0] != _PT_INTERP for number in range(count))


def _archive(shell: Path, tools: Path | None, directory: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:

        def add(name: str, kind: bytes, data: bytes = b"", target: str = "") -> None:
            member = tarfile.TarInfo(f"{directory}/{name}".rstrip("/"))
            member.type, member.mode, member.size, member.linkname = kind, 0o755, len(data), target
            archive.addfile(member, io.BytesIO(data))

        add("", tarfile.DIRTYPE)
        add("sh", tarfile.REGTYPE, shell.read_bytes())
        if tools is not None:
            add(_TOOLS, tarfile.REGTYPE, tools.read_bytes())
            for name in _APPLETS:
                add(name, tarfile.SYMTYPE, target=_TOOLS)
    return made.getvalue()


VERIFIER_DIRECTORY = "/logs/verifier"
REWARD_PATH = f"{VERIFIER_DIRECTORY}/reward.txt"
_PLACES = ("/tmp", "/var/tmp", "/run", "/dev/shm")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GIT = {
    # Of the command line's rank, so that they go before the work directory's own settings.
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.editor": "true",
    # Without a home there is no exception for a work directory that belongs to another user.
    "safe.directory": "*",
}


@dataclass
class ScoringHome:
    """The place, from the first verify command to the last; `failure` and `reward_file` are known after it."""

    directory: str
    """Absolute path; empty if the sandbox has no room for it."""
    problem: str
    """Why `/logs/verifier` could not be made new, empty if it was."""
    shell: str = "sh"
    """The shell that runs verify commands: ours, where the agent can have replaced the sandbox's own."""
    tools: str = ""
    """Directories for the front of `PATH`, joined by colons."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of every verify command."""
    failure: str = ""
    """Why agent code could not be kept apart from the verify commands, empty if it could."""
    obstacle: str = ""
    """Why the place was not prepared to the end, so that the agent's links may still stand; empty if it was."""
    reward_file: bool = False
    """Whether there is anything at the reward file's path."""


@asynccontextmanager
async def scoring_home(runtime: vf.Runtime, workdir: str, *, exposed: bool) -> AsyncIterator[ScoringHome]:
    """A new home for a rollout's verify commands, removed afterwards. With `exposed` the agent was root."""
    async with AsyncExitStack() as stack:
        code: AgentCode | None = None
        if (offered := abilities_of(runtime).agent_code()) is not None:
            code = await stack.enter_async_context(offered)
        own = await put_own_shell(runtime) if exposed else ""
        home = await _begin(runtime, workdir, code, own)
        home.environment = _environment(home.directory, code.shared if code else f"{home.directory}/shared", workdir)
        tools = [own if home.shell != "sh" else "", code.tools if code else f"{home.directory}/bin"]
        home.tools = ":".join(filter(None, tools))
        try:
            yield home
        finally:
            await _end(runtime, home)
            home.failure = home.failure or (code and code.failure) or ""


async def _begin(runtime: vf.Runtime, workdir: str, code: AgentCode | None, own: str) -> ScoringHome:
    helper = "" if code else program_text("run_agent_code.sh")
    places = (code.scratch,) if code else _PLACES
    texts = helper, program_text("drop_links.sh")
    # Without confinement /tmp is this machine's: what is there is not the agent's to answer for, nor ours to remove.
    temporary = "" if abilities_of(runtime).is_this_machine else "/tmp"
    name = f"scoring-{secrets.token_hex(8)}"
    argv = program_argv("begin_scoring.sh", name, *texts, temporary, workdir, VERIFIER_DIRECTORY, *places)
    # A shell for another kind of processor does not run; the container's own shell may.
    for shell in (f"{own}/sh", "sh") if own else ("sh",):
        environment = {"PATH": f"{own}:{_PATH}"} if shell != "sh" else {}
        made = await run_for(runtime, [shell, *argv[1:]], _SECONDS, "scoring cannot begin", environment)
        if made.exit_code == 0:
            directory, _, problem = made.stdout.partition("\n")
            return ScoringHome(directory if directory.startswith("/") else "", problem.strip()[:500], shell)
    await require_alive(runtime, "making a place for scoring")
    return ScoringHome("", f"exit code {made.exit_code}", obstacle=f"{made.stderr.strip()[-300:]} ({made.exit_code})")


async def _end(runtime: vf.Runtime, home: ScoringHome) -> None:
    """Learn what is left and remove the place; a sandbox that is gone is found out by whoever asks it next."""
    argv = [home.shell, *program_argv("end_scoring.sh", home.directory, REWARD_PATH)[1:]]
    environment = {"PATH": f"{home.tools}:{_PATH}"} if home.shell != "sh" else {}
    for line in (await run_for(runtime, argv, _SECONDS, "scoring cannot end", environment)).stdout.splitlines():
        word, _, rest = line.partition(" ")
        home.reward_file = home.reward_file or word == "reward-file"
        home.failure = rest if word == "failed" else home.failure


def _environment(directory: str, shared: str, workdir: str) -> dict[str, str]:
    home, temporary = (f"{directory}/{name}" if directory else "/nonexistent" for name in ("home", "tmp"))
    variables = {
        "HOME": home,
        "TMPDIR": temporary,
        **{f"XDG_{name}_HOME": f"{home}/.{name.lower()}" for name in ("CONFIG", "CACHE", "DATA", "STATE")},
        "XDG_RUNTIME_DIR": temporary,
        "PYTHONNOUSERSITE": "1",
        "PYTHONSTARTUP": "",
        "PYTHONUSERBASE": f"{home}/.local",
        "BASH_ENV": "",
        "ENV": "",
        "PIP_CONFIG_FILE": "/dev/null",
        "NPM_CONFIG_USERCONFIG": f"{home}/.npmrc",
        "NPM_CONFIG_GLOBALCONFIG": f"{home}/.npmrc-global",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(_GIT)),
        "AGENT_CODE_DIR": shared,
        "AGENT_CODE_WORKDIR": workdir,
    }
    for number, (name, value) in enumerate(_GIT.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
